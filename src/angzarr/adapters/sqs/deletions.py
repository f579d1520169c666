"""Deletes acknowledged messages in batches. What is not deleted comes again, and is a duplicate."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import groupby, islice
from typing import Any, Final, NamedTuple

from botocore.exceptions import BotoCoreError

from angzarr.runtime.failures import LogThrottle

_log = logging.getLogger("angzarr.transport")

#: Entries that SQS takes in one call.
MOST_A_CALL: Final = 10


class Deletion(NamedTuple):
    """A message to delete: its delivery tag, its queue's name and address, and its handle."""

    tag: str
    queue: str
    address: str
    handle: str


class Deletions:
    """The messages that one channel is to delete.

    *client_of* gives the client for a queue, and *delete_one* deletes one message; both may raise.
    *let_go* is called with the tag of each message that is deleted with others, or given up.
    """

    def __init__(
        self,
        client_of: Callable[[str], Any],
        delete_one: Callable[[str], object],
        let_go: Callable[[str], object],
    ) -> None:
        self._client_of = client_of
        self._delete_one = delete_one
        self._let_go = let_go
        self._waiting: dict[str, Deletion] = {}
        self._seldom = LogThrottle()

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def add(self, deletion: Deletion) -> None:
        """Delete it with the next `send`."""
        self._waiting[deletion.tag] = deletion

    def send(self) -> None:
        """Delete what waits, up to ten of a queue in one call; raises nothing."""
        waiting, self._waiting = self._waiting, {}
        by_queue = sorted(waiting.values(), key=lambda one: one.address)
        for _, group in groupby(by_queue, key=lambda one: one.address):
            while batch := list(islice(group, MOST_A_CALL)):
                self._delete(batch)

    def _delete(self, batch: list[Deletion]) -> None:
        if len(batch) == 1:
            self._singly(batch)
            return
        entries = [{"Id": str(n), "ReceiptHandle": one.handle} for n, one in enumerate(batch)]
        try:
            answer = self._client_of(batch[0].queue).delete_message_batch(
                QueueUrl=batch[0].address, Entries=entries
            )
        except (BotoCoreError, OSError) as error:
            self._give_up(batch, error)
        except Exception as error:  # noqa: BLE001 - of one queue, or the server knows no batches
            _log.debug("not_deleted_together: %r", error)
            self._singly(batch)
        else:
            failed = {str(entry.get("Id")) for entry in answer.get("Failed", ())}
            for n, one in enumerate(batch):
                if str(n) not in failed:
                    self._let_go(one.tag)
            self._singly([one for n, one in enumerate(batch) if str(n) in failed])

    def _singly(self, batch: list[Deletion]) -> None:
        for n, one in enumerate(batch):
            try:
                self._delete_one(one.tag)
            except (BotoCoreError, OSError) as error:  # the rest would wait as long, one by one
                self._give_up(batch[n:], error)
                return
            except Exception as error:  # noqa: BLE001 - it would end the worker's loop
                self._give_up([one], error)

    def _give_up(self, batch: list[Deletion], error: Exception) -> None:
        for one in batch:
            self._let_go(one.tag)
        if self._seldom.now():
            _log.error(
                "sqs_not_deleted: %d messages come again as duplicates: %s", len(batch), error
            )
