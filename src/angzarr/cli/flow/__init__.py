"""angzarr flow."""
