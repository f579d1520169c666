"""Google Cloud Pub/Sub adapters."""
