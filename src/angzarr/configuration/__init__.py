"""Configurations whose versions never change, and which version an event sees."""
