"""Adapters of fsspec's file systems."""
