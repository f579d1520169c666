"""Sagas: from events to commands, and from a rejection to its compensation (spec C4, C5)."""
