"""Alerts: which failures are worth one, and how they are delivered."""
