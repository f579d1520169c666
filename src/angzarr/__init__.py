"""Celery workers that lose nothing."""

__version__ = "0.1.0"
