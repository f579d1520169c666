"""AWS S3 adapters."""
