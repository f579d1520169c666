"""The work of a Celery worker between fetch and acknowledgement."""
