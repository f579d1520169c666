"""Aggregates: commands against event books (spec C1 to C3)."""
