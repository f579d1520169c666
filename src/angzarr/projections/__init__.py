"""Projections: read models that are made of events, and can be made again (spec P1 to P4)."""
