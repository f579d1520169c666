"""Remote control: commands and answers within bounds, and on RabbitMQ a queue for each connection.

Celery's is named after the node, and exclusive: while RabbitMQ has not noticed that a worker's last
connection is dead it is locked, which ends the worker that comes back, and a second of its name.
"""

from __future__ import annotations

import uuid
from typing import Any

from celery.app import control

from angzarr.adapters.celery.publish.publisher import transport_of
from angzarr.adapters.celery.worker.broadcasts import bounded


class _Mailbox(control.Mailbox):
    """Celery's, which reads no command and no answer that is too large.

    On RabbitMQ nobody else has its queues; commands find them by their exchange.
    """

    app: Any

    def get_queue(self, hostname: str) -> Any:
        """Return the queue of commands for the worker *hostname*."""
        queue = super().get_queue(hostname)
        if transport_of(self.app) == "amqp":
            queue.name = f"{queue.name}.{uuid.uuid4().hex}"
        return bounded(queue, self.app.settings.message.bounds)

    def get_reply_queue(self) -> Any:
        """Return the queue of answers to this process: a worker asks others when it starts."""
        return bounded(super().get_reply_queue(), self.app.settings.message.bounds)


class Control(control.Control):
    """Celery's, with such a mailbox."""

    Mailbox = _Mailbox

    def __init__(self, app: Any = None) -> None:
        super().__init__(app)
        self.mailbox.app = app
