"""Projections built anew in shadow tables."""
