"""In-process adapters: for tests, and for the embedded demo."""
