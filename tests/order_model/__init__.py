"""Ordered handlers under crashes: random histories, and what must hold after each of them."""
