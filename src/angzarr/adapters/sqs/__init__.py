"""AWS SQS adapters."""
