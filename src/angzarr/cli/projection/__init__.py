"""angzarr projection."""
