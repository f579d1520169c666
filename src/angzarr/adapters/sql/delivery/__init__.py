"""Claims, steps, delays, facts and the fleet in SQL."""
