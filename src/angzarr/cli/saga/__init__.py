"""angzarr saga."""
