"""Takes letters from SQS: several queues in turn, each letter hidden from others meanwhile."""

from __future__ import annotations

import functools
import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from angzarr.adapters.sqs.client import FAILURES, LONG_POLL, is_gone, reason_of
from angzarr.adapters.sqs.letter_leases import (
    TRIED_AGAIN_AFTER,
    LeaseRenewal,
    Leases,
    by_queue,
    entries_of,
)
from angzarr.adapters.sqs.letter_messages import ALL, BATCH, as_bytes, record_of, told_by, unwrapped
from angzarr.adapters.sqs.queues import SqsQueues
from angzarr.dead_letters.codec import read_receipt
from angzarr.dead_letters.queue import BATCH_BYTES, Receipt, Room
from angzarr.errors import DeadLetterQueueUnavailable
from angzarr.runtime.failures import LogThrottle

if TYPE_CHECKING:
    from mypy_boto3_sqs.type_defs import MessageTypeDef

_LOG: Final = logging.getLogger(__name__)
#: Seconds between looks where the wait is too short for a long poll.
_PAUSE: Final = 0.1
#: What SQS answers where a receipt's lease has ended.
_LEASE_ENDED: Final = frozenset({"ReceiptHandleIsInvalid", "InvalidParameterValue"})


class SqsLetterReceiver:
    """Receives and deletes; safe from any thread."""

    def __init__(self, queues: SqsQueues, visibility: timedelta) -> None:
        self._queues = queues
        self._visibility = max(1, int(visibility.total_seconds()))
        self._lock = threading.Lock()
        self._turn: deque[str] = deque()
        self._leases = Leases(self._change, self._visibility)
        pause = self._visibility * TRIED_AGAIN_AFTER
        self._renewal = LeaseRenewal(self._leases.renew, pause)
        self._seldom = LogThrottle()

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
        while taken and (room := _room(limit, taken)):
            more = self._look_at_all(domains, room.letters, taken)
            if not more:
                break
            taken += more
        return taken

    def done(self, receipts: Sequence[Receipt]) -> None:
        """Delete the messages of *receipts*."""
        for url, batch in by_queue(self._leases.held(receipt.handle for receipt in receipts)):
            try:
                client = self._queues.client
                reply = client.delete_message_batch(QueueUrl=url, Entries=entries_of(batch))
            except FAILURES as error:
                if not is_gone(error):
                    raise
            else:
                _check(reply.get("Failed", ()))
            self._leases.let_go(batch)

    def give_back(self, patience: float) -> None:
        """Make what is held visible to others at once.

        A renewal that is under way is waited for, for *patience* seconds: it would hide it again.
        """
        held = self._leases.let_all_go()
        self._renewal.stop(patience)
        for url, batch in by_queue(held):
            self._change(url, [entry | {"VisibilityTimeout": 0} for entry in entries_of(batch)])

    def _change(self, url: str, entries: list[Any]) -> Mapping[str, Any]:
        return self._queues.client.change_message_visibility_batch(QueueUrl=url, Entries=entries)

    def _look_at_all(
        self, domains: Sequence[str], limit: int, in_hand: Sequence[Receipt] = ()
    ) -> list[Receipt]:
        """Look once at each queue without waiting, beginning after the one looked at last.

        A queue that SQS refuses keeps no other's letters back, and a failure none of *in_hand*.
        """
        taken: list[Receipt] = []
        refused: tuple[str, Exception] | None = None
        for _ in domains:
            if not _room(limit, taken):
                break
            domain = self._next(domains)
            try:
                taken += self._look(domain, limit - len(taken), 0)
            except (*FAILURES, DeadLetterQueueUnavailable) as error:
                refused = refused or (domain, error)
                if not isinstance(error, (ClientError, DeadLetterQueueUnavailable)):
                    break  # no answer: nor would the next
        if refused and not taken and not in_hand:
            raise refused[1]
        if refused:
            self._say(*refused)
        return taken

    def _say(self, domain: str, error: Exception) -> None:
        if self._seldom.now(domain):
            told = reason_of(error)
            _LOG.warning("dead_letters_not_read: those of %s cannot be received: %s", domain, told)

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
        # A FIFO queue gives the same letters again where the client asks anew after a lost reply.
        attempt: Any = {"ReceiveRequestAttemptId": uuid.uuid4().hex} if self._queues.fifo else {}
        asked_at = time.monotonic()
        reply = self._queues.client.receive_message(
            QueueUrl=url,
            MaxNumberOfMessages=min(limit, BATCH),
            WaitTimeSeconds=wait,
            VisibilityTimeout=self._visibility,
            MessageAttributeNames=ALL,
            MessageSystemAttributeNames=ALL,
            **attempt,
        )
        messages = reply.get("Messages", ())
        receipts = [self._receipt(domain, url, message, asked_at) for message in messages]
        if receipts:
            self._renewal.begin()
        return receipts

    def _receipt(self, domain: str, url: str, message: MessageTypeDef, asked_at: float) -> Receipt:
        handle = self._leases.hold(url, message["ReceiptHandle"], asked_at)
        given = message.get("MessageAttributes", {})
        said = {name: value.get("StringValue", "") for name, value in given.items()}
        carried = unwrapped(told_by(said, message["Body"]))
        record = functools.partial(record_of, message)
        return read_receipt(domain, as_bytes(carried), carried.content_type, handle, record)


def _room(limit: int, taken: Sequence[Receipt]) -> Room:
    """The room that is left, by tens."""
    return Room(limit - len(taken), BATCH_BYTES - sum(len(one.raw) for one in taken))


def _check(failed: Sequence[Mapping[str, Any]]) -> None:
    codes = {str(entry.get("Code")) for entry in failed} - _LEASE_ENDED
    if codes:
        msg = f"SQS did not delete {len(failed)} letters: {', '.join(sorted(codes))}"
        raise DeadLetterQueueUnavailable(msg)
