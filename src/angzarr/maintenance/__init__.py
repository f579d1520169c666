"""Work that repeats: tables that have versions, records that are too old."""
