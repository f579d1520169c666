"""angzarr policy."""
