"""Adapters: one folder a technology, one file for each port it fulfils."""
