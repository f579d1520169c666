"""Claims, steps, delays and the fleet in SQL."""
