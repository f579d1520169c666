"""Structured-log adapters."""
