"""Sealed letters by joserfc."""
