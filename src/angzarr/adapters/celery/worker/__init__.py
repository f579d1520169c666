"""What a Celery worker does between fetch and acknowledgement."""
