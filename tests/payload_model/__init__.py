"""A model of bodies in a payload store: random histories, with crashes at every step."""
