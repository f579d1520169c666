"""Bodies encrypted by the library cryptography."""
