"""HoldingQueue: letters hold the bodies that their messages left in a payload store (spec F4).

The hold is noted before the letter is put, anywhere, a spool included. Its message's own hold ends
behind that, with the claim. So a body is held at each moment until the letter's entry is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

from angzarr.dead_letters.letter import DeadLetter
from angzarr.dead_letters.queue import DeadLetterQueue, RawLetter, Receipt, put_raw
from angzarr.errors import StoreUnavailable
from angzarr.payloads.holders import PayloadHold, PayloadHolders, hold_of, letter_holder


class HoldingQueue:
    """A dead-letter queue: *queue*, whose letters hold their bodies; *open_holders* says where."""

    def __init__(self, queue: DeadLetterQueue, open_holders: Callable[[], PayloadHolders]) -> None:
        self._queue = queue
        self._open_holders = open_holders

    def put(self, letters: Sequence[DeadLetter], /) -> list[str | None]:
        """Put *letters* (see DeadLetterQueue).

        While the register is away a letter that holds a body is refused, and must be put again. A
        body that is not registered is kept for ever, and needs no hold.
        """
        holds = [payload_hold(letter) for letter in letters]
        why = self._join([hold for hold in holds if hold is not None])
        if not why:
            return self._queue.put(letters)
        going = [letter for letter, hold in zip(letters, holds, strict=True) if hold is None]
        told = iter(self._queue.put(going) if going else ())
        return [next(told) if hold is None else why for hold in holds]

    def put_raw(self, letters: Sequence[RawLetter], /) -> list[str | None]:
        """Put bytes that are no letter as they came (see `queue.put_raw`)."""
        return put_raw(self._queue, letters)

    def receive(self, domains: Sequence[str], /, *, limit: int, wait: timedelta) -> list[Receipt]:
        """Take letters as they are (see DeadLetterQueue)."""
        return self._queue.receive(domains, limit=limit, wait=wait)

    def done(self, receipts: Sequence[Receipt], /) -> None:
        """Let these letters go; they hold their bodies still, for the ledger."""
        self._queue.done(receipts)

    def close(self) -> None:
        """Close the queue."""
        self._queue.close()

    def _join(self, holds: Sequence[PayloadHold]) -> str:
        """Note *holds*; return why that cannot be now, or nothing."""
        try:
            if holds:
                self._open_holders().join(holds)
        except StoreUnavailable as error:
            return str(error)
        return ""


def payload_hold(letter: DeadLetter) -> PayloadHold | None:
    """The hold of *letter* on its body in a payload store; None: it has none there."""
    if letter.payload is None:
        return None
    return hold_of(letter.payload.uri, letter_holder(letter.id, letter.sent_to_dlq_at))
