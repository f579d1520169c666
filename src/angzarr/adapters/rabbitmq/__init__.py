"""RabbitMQ adapters."""
