"""Celery: the broker's side of every delivery."""
