"""Entries and groups of the ledger: their states and changes."""
