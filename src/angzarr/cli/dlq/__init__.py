"""angzarr dlq."""
