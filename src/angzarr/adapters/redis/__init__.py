"""Redis adapters."""
