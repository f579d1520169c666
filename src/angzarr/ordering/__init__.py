"""Ordering: the events of one aggregate in sequence, each handler for itself (spec P3)."""
