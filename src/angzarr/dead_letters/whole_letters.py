"""WholeLetterQueue: letters get their body back before they are redacted or sealed.

The letter of a large message names the body that its publisher stored, which hides nothing. Where
letters are to hide something, such a reference must not leave: people who may look at a letter
would see the body behind it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from angzarr.dead_letters.letter import DeadLetter
from angzarr.dead_letters.queue import DeadLetterQueue, RawLetter, Receipt, put_raw
from angzarr.errors import PayloadCorrupt, PayloadGone, PayloadStoreUnavailable
from angzarr.payloads.store import PayloadStore


class WholeLetterQueue:
    """A dead-letter queue: *queue*, which gets letters with the body that *store* has."""

    def __init__(self, queue: DeadLetterQueue, store: PayloadStore) -> None:
        self._queue = queue
        self._store = store

    def put(self, letters: Sequence[DeadLetter], /) -> list[str | None]:
        """Put *letters* (see DeadLetterQueue), whole.

        While the store is away a letter that needs it is refused, and must be put again. A body
        that is gone or corrupt shows nothing: its letter goes without it.
        """
        answers: list[str | None] = [None] * len(letters)
        going: list[tuple[int, DeadLetter]] = []
        for at, letter in enumerate(letters):
            try:
                going.append((at, self._whole(letter)))
            except PayloadStoreUnavailable as error:
                answers[at] = str(error)
        if going:
            told = self._queue.put([letter for _, letter in going])
            for (at, _), answer in zip(going, told, strict=True):
                answers[at] = answer
        return answers

    def _whole(self, letter: DeadLetter) -> DeadLetter:
        if letter.payload is None or not letter.is_elsewhere or letter.envelope:
            return letter
        try:
            body = self._store.fetch(letter.payload)
        except (PayloadGone, PayloadCorrupt):
            return letter
        event = letter.event and replace(letter.event, data=_data_in(body))
        message = replace(letter.message, body=body)
        return replace(letter, message=message, event=event, payload=None)

    def put_raw(self, letters: Sequence[RawLetter], /) -> list[str | None]:
        """Put bytes that are no letter as they came (see `queue.put_raw`)."""
        return put_raw(self._queue, letters)

    def receive(self, domains: Sequence[str], /, *, limit: int, wait: timedelta) -> list[Receipt]:
        """Take letters as they are (see DeadLetterQueue)."""
        return self._queue.receive(domains, limit=limit, wait=wait)

    def done(self, receipts: Sequence[Receipt], /) -> None:
        """Let these letters go."""
        self._queue.done(receipts)

    def close(self) -> None:
        """Close queue and store."""
        self._queue.close()
        self._store.close()


def _data_in(body: bytes) -> Any:
    """The event's data in *body*: its only argument, or all of them; None: it cannot be read."""
    try:
        args, kwargs, _embed = json.loads(body)
    except (ValueError, TypeError, RecursionError):
        return None
    if isinstance(args, list) and len(args) == 1 and not kwargs:
        return args[0]
    return {"args": args, "kwargs": kwargs}
