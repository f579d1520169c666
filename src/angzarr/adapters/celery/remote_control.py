"""Remote control over RabbitMQ, with a queue of its own for each connection of a worker.

Celery's is named after the node, and exclusive: while RabbitMQ has not noticed that a worker's last
connection is dead it is locked, which ends the worker that comes back, and a second of its name.
"""

from __future__ import annotations

import uuid
from typing import Any

from celery.app import control

from angzarr.adapters.celery.publisher import transport_of


class _Mailbox(control.Mailbox):
    """Celery's, whose queues nobody else has; commands find them by their exchange."""

    def get_queue(self, hostname: str) -> Any:
        """Return a new queue for the worker *hostname*."""
        queue = super().get_queue(hostname)
        queue.name = f"{queue.name}.{uuid.uuid4().hex}"
        return queue


class Control(control.Control):
    """Celery's, with such a mailbox where the broker is RabbitMQ."""

    def __init__(self, app: Any = None) -> None:
        if transport_of(app) == "amqp":
            self.Mailbox = _Mailbox
        super().__init__(app)
