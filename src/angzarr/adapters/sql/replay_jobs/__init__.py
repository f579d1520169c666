"""Replay jobs in SQL."""
