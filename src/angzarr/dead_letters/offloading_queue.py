"""Offloading: letters that are too large for their queue leave their body in a store (spec F4).

A letter that names a payload is never put before the store has confirmed it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta

from angzarr.dead_letters.letter import DeadLetter
from angzarr.dead_letters.queue import DeadLetterQueue, RawLetter, Receipt, TooLarge, put_raw
from angzarr.errors import DeadLetterQueueUnavailable, PayloadStoreUnavailable
from angzarr.payloads.holders import BodyRegistration, letter_holder
from angzarr.payloads.store import PayloadReference, PayloadStore


class OffloadingQueue:
    """A dead-letter queue that takes letters of any size: *queue*, with *store* beside it.

    Letters that *queue* refuses as too large are put again without their body; those whose body
    has more than *over* bytes go without it at once. Limits differ: one for each backend. What is
    stored is registered as held by its letter; without *registration* it is kept for ever.
    """

    def __init__(
        self,
        queue: DeadLetterQueue,
        store: PayloadStore,
        *,
        over: int | None = None,
        registration: BodyRegistration | None = None,
    ) -> None:
        self._queue = queue
        self._store = store
        self._over = over
        self._registration = registration

    def put(self, letters: Sequence[DeadLetter], /) -> list[str | None]:
        """Put *letters* (see DeadLetterQueue); one is `TooLarge` if it is without its body.

        While the store is away a letter that needs it is refused, and must be put again.
        """
        going = list(letters)
        away = self._store_bodies(going, [at for at, one in enumerate(going) if self._is_over(one)])
        answers = self._queue.put(going)
        large = [
            at
            for at, why in enumerate(answers)
            if isinstance(why, TooLarge) and has_body(going[at])
        ]
        away = away or self._store_bodies(going, large)
        again = [at for at in large if not has_body(going[at])]
        for at in large:
            answers[at] = f"{answers[at]}; {away}"
        for at, why in zip(again, self._put_again([going[at] for at in again]), strict=True):
            answers[at] = why
        return answers

    def put_raw(self, letters: Sequence[RawLetter], /) -> list[str | None]:
        """Put bytes that are no letter as they came (see `queue.put_raw`).

        One that is too large is refused: only a letter can name the payload that it left.
        """
        return put_raw(self._queue, letters)

    def receive(self, domains: Sequence[str], /, *, limit: int, wait: timedelta) -> list[Receipt]:
        """Take letters as they are (see DeadLetterQueue); a replay fetches the body."""
        return self._queue.receive(domains, limit=limit, wait=wait)

    def done(self, receipts: Sequence[Receipt], /) -> None:
        """Let these letters go; their payloads stay, for the replay."""
        self._queue.done(receipts)

    def close(self) -> None:
        """Close queue and store."""
        self._queue.close()
        self._store.close()

    def _is_over(self, letter: DeadLetter) -> bool:
        """True if *letter*'s body is stored before any queue saw it; costs no encoding."""
        return self._over is not None and len(letter.message.body) > self._over and has_body(letter)

    def _store_bodies(self, letters: list[DeadLetter], which: Iterable[int]) -> str:
        """Take the bodies of *which* of *letters* to the store; return why it stopped, if it did.

        A store that is away is asked once: the letters behind keep their bodies.
        """
        try:
            for at in which:
                letters[at] = without_body(letters[at], self._store_body(letters[at]))
        except PayloadStoreUnavailable as error:
            return str(error)
        return ""

    def _store_body(self, letter: DeadLetter) -> PayloadReference:
        """Put the body of *letter*, which holds it."""
        if self._registration is None:
            return self._store.put(letter.message.body)
        holder = letter_holder(letter.id, letter.sent_to_dlq_at)
        name = self._registration.namer(holder)
        return self._store.put(letter.message.body, name)

    def _put_again(self, letters: Sequence[DeadLetter]) -> list[str | None]:
        """Put *letters*; a queue that went away meanwhile refuses these, not those it has."""
        try:
            return self._queue.put(letters) if letters else []
        except DeadLetterQueueUnavailable as error:
            return [str(error)] * len(letters)


def has_body(letter: DeadLetter) -> bool:
    """True if *letter* has a body that can be kept elsewhere; a letter of others has none."""
    return bool(letter.message.body) and letter.payload is None and not letter.envelope


def without_body(letter: DeadLetter, payload: PayloadReference) -> DeadLetter:
    """*letter* with its body, and the data read from it, at *payload*."""
    event = replace(letter.event, data=None) if letter.event else None
    message = replace(letter.message, body=b"")
    return replace(letter, message=message, event=event, payload=payload)
