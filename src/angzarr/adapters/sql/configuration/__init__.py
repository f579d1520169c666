"""Versions of configurations in SQL."""
