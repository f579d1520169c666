"""How messages reach a broker, confirmed."""
