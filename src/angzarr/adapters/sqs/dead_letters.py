"""Dead letters on SQS: one queue for each domain, and a check of each entry's answer (L2, L4).

SQS keeps a message for 14 days at most; the analysis worker moves letters into the ledger.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from angzarr.adapters.sqs.client import FAILURES, Service, told
from angzarr.adapters.sqs.letter_receiver import SqsLetterReceiver
from angzarr.adapters.sqs.letter_sender import LetterSender, QueueOutlet, TopicOutlet
from angzarr.adapters.sqs.queues import SqsQueues
from angzarr.adapters.sqs.topics import SnsTopics
from angzarr.dead_letters.codec import Form
from angzarr.dead_letters.depth import QueueDepth
from angzarr.dead_letters.queue import Outgoing, Receipt


class SqsDeadLetterQueue:
    """A dead-letter queue on SQS; safe from any thread and across fork.

    *visibility* is the lease of a received letter, renewed while its receipt is in hand; after
    it, the letter comes to another receiver. *timeout* bounds each connect and reply. With *fifo*
    letters of one aggregate keep their order. Credentials are found as boto3 finds them, by
    *profile* if named; *options* go to boto3's client, e.g. ``verify`` or keys.
    """

    _put_to = "SQS"

    def __init__(
        self,
        *,
        region: str | None = None,
        endpoint_url: str | None = None,
        profile: str | None = None,
        fifo: bool = False,
        create_missing: bool = True,
        timeout: timedelta = timedelta(seconds=5),
        visibility: timedelta = timedelta(minutes=5),
        form: Form = Form.JSON,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._service = Service(
            region=region,
            endpoint_url=endpoint_url,
            profile=profile,
            timeout=timeout.total_seconds(),
            options=dict(options or {}),
        )
        self._fifo = fifo
        self._create_missing = create_missing
        self._visibility = visibility
        self._form = form
        self._open()

    def put(self, letters: Sequence[Outgoing], /) -> list[str | None]:
        """Send *letters* in batches, bytes as a text or as base64."""
        if not letters:
            return []
        self._leave_parents_client()
        with told(self._put_to):
            return self._sender.send(letters)

    put_raw = put

    def receive(self, domains: Sequence[str], /, *, limit: int, wait: timedelta) -> list[Receipt]:
        """Take up to *limit* letters, from each of *domains* in turn (see DeadLetterQueue)."""
        if not domains:
            return []
        self._leave_parents_client()
        with told("SQS"):
            return self._receiver.receive(domains, limit, wait.total_seconds())

    def done(self, receipts: Sequence[Receipt], /) -> None:
        """Delete the messages of *receipts*; one whose lease has ended is ignored."""
        self._leave_parents_client()
        with told("SQS"):
            self._receiver.done(receipts)

    def waiting(self, domains: Sequence[str], /) -> dict[str, int]:
        """Count what SQS says to have for a receiver, about (see CountsWaiting)."""
        return {domain: depth.waiting for domain, depth in self.depths(domains).items()}

    def depths(self, domains: Sequence[str], /) -> dict[str, QueueDepth]:
        """Count the same, and what is in hand besides (see TellsDepth)."""
        self._leave_parents_client()
        with told("SQS"):
            return {domain: self._queues.depth(domain) for domain in domains}

    def close(self) -> None:
        """Make what was received and not done visible again, and close the connections."""
        self._leave_parents_client()
        with contextlib.suppress(*FAILURES):  # its lease ends by itself
            self._receiver.give_back(self._service.timeout)
        self._queues.close()

    def _open(self) -> None:
        self._process = os.getpid()
        self._queues = SqsQueues(
            self._service, fifo=self._fifo, create_missing=self._create_missing
        )
        self._sender = LetterSender(QueueOutlet(self._queues), self._form)
        self._receiver = SqsLetterReceiver(self._queues, self._visibility)

    def _leave_parents_client(self) -> None:
        if self._process != os.getpid():
            self._open()


class SnsSqsDeadLetterQueue(SqsDeadLetterQueue):
    """A topic a domain on SNS, fanned out to a queue of its name, which is received from."""

    _put_to = "SNS"

    def close(self) -> None:
        """Do what a queue on SQS does, and close the connections to SNS."""
        super().close()
        self._topics.close()

    def _open(self) -> None:
        self._process = os.getpid()
        self._topics = SnsTopics(
            self._service, fifo=self._fifo, create_missing=self._create_missing
        )
        self._queues = self._topics.queues
        self._sender = LetterSender(TopicOutlet(self._topics), self._form)
        self._receiver = SqsLetterReceiver(self._queues, self._visibility)
