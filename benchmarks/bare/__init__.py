"""Bare clients: what a person would write by hand to put JSON into a queue, confirmed, and read it.

Each module opens one backend: a dead-letter queue of ours and the client beside it.
"""
