"""The order of events and the checkpoints of projections in SQL."""
