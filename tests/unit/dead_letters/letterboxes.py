"""Targets of letters that do what a test says."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from angzarr.dead_letters.letter import DeadLetter
from angzarr.dead_letters.queue import Receipt
from angzarr.errors import DeadLetterQueueUnavailable


class Target:
    """A dead-letter queue in memory that can be away, slow, or against a letter."""

    def __init__(self, name: str, let_pass=lambda _span: None) -> None:
        self.name = name
        self.taken: list[str] = []
        self.asked = 0
        self.away: Exception | None = None
        #: Letter id → the reason, None: for all.
        self.against: dict[str | None, str] = {}
        self.takes = timedelta(0)
        self.waiting: list[Receipt] = []
        self.done_with: list[object] = []
        self.waits: list[timedelta] = []
        self.closed = 0
        self._let_pass = let_pass

    def leave(self, error: Exception | None = None) -> None:
        self.away = error or DeadLetterQueueUnavailable(f"{self.name} gave no answer")

    def come_back(self) -> None:
        self.away = None

    def put(self, letters: Sequence[DeadLetter], /) -> list[str | None]:
        self._be_asked()
        answers = [self.against.get(letter.id, self.against.get(None)) for letter in letters]
        self.taken += [
            letter.id for letter, why in zip(letters, answers, strict=True) if why is None
        ]
        return answers

    def receive(self, domains, /, *, limit, wait):
        self._be_asked()
        self.waits.append(wait)
        if not self.waiting:
            self._let_pass(wait)
        taken, self.waiting = self.waiting[:limit], self.waiting[limit:]
        return taken

    def done(self, receipts, /):
        self._be_asked()
        self.done_with += [receipt.handle for receipt in receipts]

    def close(self):
        self.closed += 1

    def _be_asked(self) -> None:
        self.asked += 1
        self._let_pass(self.takes)
        if self.away is not None:
            raise self.away
