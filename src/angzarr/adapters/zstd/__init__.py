"""Adapters of Zstandard."""
