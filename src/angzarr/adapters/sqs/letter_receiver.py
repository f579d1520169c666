"""Takes letters from SQS: several queues in turn, each letter hidden from others meanwhile."""

from __future__ import annotations

import base64
import binascii
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from angzarr.adapters.sqs.letter_sender import BATCH
from angzarr.adapters.sqs.queues import CONTENT_TYPE, FAILURES, LONG_POLL, Queues, is_gone
from angzarr.dead_letters.codec import JSON_CONTENT_TYPE, read_receipt
from angzarr.dead_letters.queue import Receipt
from angzarr.errors import DeadLetterQueueUnavailable

if TYPE_CHECKING:
    from mypy_boto3_sqs.type_defs import MessageTypeDef

#: Seconds between looks where the wait is too short for a long poll.
_PAUSE: Final = 0.1
#: What SQS answers where a receipt's lease has ended.
_LEASE_ENDED: Final = frozenset({"ReceiptHandleIsInvalid", "InvalidParameterValue"})


class Handle(NamedTuple):
    """The queue a message is in, and SQS's receipt for it."""

    url: str
    receipt: str


class LetterReceiver:
    """Receives and deletes; safe from any thread."""

    def __init__(self, queues: Queues, visibility: timedelta) -> None:
        self._queues = queues
        self._visibility = int(visibility.total_seconds())
        self._lock = threading.Lock()
        self._turn: deque[str] = deque()
        self._held: dict[Handle, None] = {}

    def receive(self, domains: Sequence[str], limit: int, wait: float) -> list[Receipt]:
        """Take up to *limit* letters, waiting at most *wait* seconds for the first."""
        deadline = time.monotonic() + wait
        taken = self._look_at_all(domains, limit)
        while not taken and (left := deadline - time.monotonic()) > 0:
            if left < LONG_POLL:
                time.sleep(min(left, _PAUSE))
                taken = self._look_at_all(domains, limit)
            else:
                taken = self._look(self._next(domains), limit, LONG_POLL)
        while (
            taken
            and len(taken) < limit
            and (more := self._look_at_all(domains, limit - len(taken)))
        ):
            taken += more
        return taken

    def done(self, receipts: Sequence[Receipt]) -> None:
        """Delete the messages of *receipts*."""
        with self._lock:
            handles = [receipt.handle for receipt in receipts if receipt.handle in self._held]
        for url, batch in _by_queue(handles):
            try:
                client = self._queues.client
                reply = client.delete_message_batch(QueueUrl=url, Entries=_entries(batch))
            except FAILURES as error:
                if not is_gone(error):
                    raise
            else:
                _check(reply.get("Failed", ()))
            self._forget(batch)

    def give_back(self) -> None:
        """Make what is held visible to others at once."""
        with self._lock:
            handles = list(self._held)
            self._held.clear()
        for url, batch in _by_queue(handles):
            entries: Any = [entry | {"VisibilityTimeout": 0} for entry in _entries(batch)]
            self._queues.client.change_message_visibility_batch(QueueUrl=url, Entries=entries)

    def _look_at_all(self, domains: Sequence[str], limit: int) -> list[Receipt]:
        """Look once at each queue without waiting, beginning after the one looked at last."""
        taken: list[Receipt] = []
        for _ in domains:
            if len(taken) >= limit:
                break
            taken += self._look(self._next(domains), limit - len(taken), 0)
        return taken

    def _next(self, domains: Sequence[str]) -> str:
        with self._lock:
            if set(self._turn) != set(domains):
                self._turn = deque(domains)
            self._turn.rotate(-1)
            return self._turn[-1]

    def _look(self, domain: str, limit: int, wait: int) -> list[Receipt]:
        try:
            return self._ask(domain, limit, wait)
        except FAILURES as error:
            if not self._queues.forget_if_gone(domain, error):
                raise
            return self._ask(domain, limit, wait)

    def _ask(self, domain: str, limit: int, wait: int) -> list[Receipt]:
        url = self._queues.url(domain)
        reply = self._queues.client.receive_message(
            QueueUrl=url,
            MaxNumberOfMessages=min(limit, BATCH),
            WaitTimeSeconds=wait,
            VisibilityTimeout=self._visibility,
            MessageAttributeNames=[CONTENT_TYPE],
        )
        return [self._receipt(domain, url, message) for message in reply.get("Messages", ())]

    def _receipt(self, domain: str, url: str, message: MessageTypeDef) -> Receipt:
        handle = Handle(url, message["ReceiptHandle"])
        with self._lock:
            self._held[handle] = None
        attributes = message.get("MessageAttributes", {})
        content_type = attributes[CONTENT_TYPE]["StringValue"] if CONTENT_TYPE in attributes else ""
        return read_receipt(domain, _bytes(message["Body"], content_type), content_type, handle)

    def _forget(self, handles: Sequence[Handle]) -> None:
        with self._lock:
            for handle in handles:
                self._held.pop(handle, None)


def _bytes(text: str, content_type: str) -> bytes:
    """Return the letter's bytes: base64 wherever the text is not JSON (wire facts)."""
    if content_type.startswith(JSON_CONTENT_TYPE) or text.startswith("{"):
        return text.encode()
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return text.encode()


def _by_queue(handles: Sequence[Handle]) -> Iterator[tuple[str, list[Handle]]]:
    by_url: dict[str, list[Handle]] = {}
    for handle in handles:
        by_url.setdefault(handle.url, []).append(handle)
    for url, own in by_url.items():
        for start in range(0, len(own), BATCH):
            yield url, own[start : start + BATCH]


def _entries(handles: Sequence[Handle]) -> list[Any]:
    return [{"Id": str(at), "ReceiptHandle": one.receipt} for at, one in enumerate(handles)]


def _check(failed: Sequence[Mapping[str, Any]]) -> None:
    codes = {str(entry.get("Code")) for entry in failed} - _LEASE_ENDED
    if codes:
        msg = f"SQS did not delete {len(failed)} letters: {', '.join(sorted(codes))}"
        raise DeadLetterQueueUnavailable(msg)
