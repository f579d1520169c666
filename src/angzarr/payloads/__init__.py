"""Bodies that are too large for a queue, kept beside it."""
