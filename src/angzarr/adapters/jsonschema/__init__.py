"""Values checked against JSON schemas."""
