"""Dead letters on Google Cloud Pub/Sub: a topic and a subscription for each domain (L2, L4).

Pub/Sub keeps a letter for 31 days at most; the analysis worker moves letters into the ledger.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from angzarr.adapters.pubsub.client import CALLS, Clients, PubSubService
from angzarr.adapters.pubsub.letter_publisher import PubSubLetterPublisher
from angzarr.adapters.pubsub.letter_receiver import PubSubLetterReceiver
from angzarr.adapters.pubsub.topics import Topics
from angzarr.dead_letters.codec import Form
from angzarr.dead_letters.queue import Outgoing, Receipt
from angzarr.errors import DeadLetterQueueUnavailable


class PubSubDeadLetterQueue:
    """A dead-letter queue on Pub/Sub; safe from any thread and across fork.

    *lease* is how long a received letter is ours, from 10 s to 10 min; it is renewed for an hour
    while its receipt is in hand and its domain is asked for. With *ordering* the letters of one
    aggregate are delivered one after the other. *timeout* bounds each request. Credentials are
    found as google-auth finds them; *options* go to Google's clients, e.g. ``credentials``.
    """

    def __init__(
        self,
        project: str,
        *,
        endpoint: str | None = None,
        ordering: bool = False,
        create_missing: bool = True,
        timeout: timedelta = timedelta(seconds=5),
        lease: timedelta = timedelta(minutes=1),
        form: Form = Form.JSON,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._service = PubSubService(
            project=project,
            endpoint=endpoint,
            timeout=timeout.total_seconds(),
            ordering=ordering,
            options=dict(options or {}),
        )
        self._create_missing = create_missing
        self._lease = lease
        self._form = form
        self._open()

    def put(self, letters: Sequence[Outgoing], /) -> list[str | None]:
        """Publish *letters* and wait for each one's message id; bytes have no ordering key."""
        if not letters:
            return []
        self._leave_parents_clients()
        with CALLS.under_way(), self._service.told():
            return self._publisher.publish(letters)

    put_raw = put

    def receive(self, domains: Sequence[str], /, *, limit: int, wait: timedelta) -> list[Receipt]:
        """Take up to *limit* letters, from each of *domains* in turn (see DeadLetterQueue)."""
        if not domains:
            return []
        self._leave_parents_clients()
        with CALLS.under_way(), self._service.told():
            return self._receiver.receive(domains, limit, wait.total_seconds())

    def done(self, receipts: Sequence[Receipt], /) -> None:
        """Acknowledge *receipts*; one whose lease has ended is ignored."""
        self._leave_parents_clients()
        with CALLS.under_way(), self._service.told():
            self._receiver.done(receipts)

    def close(self) -> None:
        """Give back what was received and not done, and close the connections."""
        self._leave_parents_clients()
        with contextlib.suppress(DeadLetterQueueUnavailable), CALLS.under_way():
            self._receiver.close()
            self._clients.close()

    def _open(self) -> None:
        self._process = os.getpid()
        self._clients = Clients(self._service)
        topics = Topics(self._clients, create_missing=self._create_missing, lease=self._lease)
        self._publisher = PubSubLetterPublisher(self._clients, topics, self._form)
        self._receiver = PubSubLetterReceiver(
            self._clients, topics, int(self._lease.total_seconds())
        )

    def _leave_parents_clients(self) -> None:
        if self._process != os.getpid():
            self._open()
