"""Adapters on a local file system."""
