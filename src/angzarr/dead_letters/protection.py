"""Protection: what is done to a letter before it leaves its worker: redact, seal, sign."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from angzarr.dead_letters.letter import DeadLetter
from angzarr.dead_letters.metadata import SIGNATURES
from angzarr.dead_letters.queue import DeadLetterQueue, RawLetter, Receipt, put_raw
from angzarr.dead_letters.redaction import Redaction, hides
from angzarr.dead_letters.sealing import Cipher, seal, without_payload
from angzarr.dead_letters.signing import Signatures


class Encrypt(StrEnum):
    """Which letters are sealed."""

    NONE = "none"
    REDACTED = "redacted"  # those whose message would not be whole otherwise
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """Redacts, then seals what was hidden, then signs what travels (ADR 0022)."""

    redaction: Redaction = field(default_factory=Redaction)
    cipher: Cipher | None = None
    encrypt: Encrypt = Encrypt.NONE
    signatures: Signatures = field(default_factory=Signatures)

    def __call__(self, letter: DeadLetter) -> DeadLetter:
        """Return *letter* as it may leave; the same bytes each time, for ids and duplicates.

        For letters that this process wrote. One that others wrote, or that was signed before, is
        left as it is: a signature is no word for somebody else's letter. A message decides nothing
        here: one that claims to be sealed is protected like any other.
        """
        if letter.envelope or not SIGNATURES.isdisjoint(letter.metadata):
            return letter
        shown = self.redaction(letter)
        if self.cipher is not None and self._is_to_seal(shown):
            if self.encrypt is Encrypt.ALL:
                shown = without_payload(shown)
            shown = seal(shown, letter.message, letter.event, self.cipher)
        return self.signatures.sign(shown)

    def _is_to_seal(self, shown: DeadLetter) -> bool:
        return self.encrypt is Encrypt.ALL or (self.encrypt is Encrypt.REDACTED and hides(shown))


class ProtectedQueue:
    """A dead-letter queue into which no letter goes unprotected; what comes out is as it came."""

    def __init__(self, queue: DeadLetterQueue, protect: Callable[[DeadLetter], DeadLetter]) -> None:
        self._queue = queue
        self._protect = protect

    def put(self, letters: Sequence[DeadLetter], /) -> list[str | None]:
        """Put *letters*, protected."""
        return self._queue.put([self._protect(letter) for letter in letters])

    def put_raw(self, letters: Sequence[RawLetter], /) -> list[str | None]:
        """Put bytes that are no letter as they came: others wrote them (see `queue.put_raw`)."""
        return put_raw(self._queue, letters)

    def receive(self, domains: Sequence[str], /, *, limit: int, wait: timedelta) -> list[Receipt]:
        """Take letters as they are: the check comes before a replay."""
        return self._queue.receive(domains, limit=limit, wait=wait)

    def done(self, receipts: Sequence[Receipt], /) -> None:
        """Let these letters go."""
        self._queue.done(receipts)

    def close(self) -> None:
        """Close the queue."""
        self._queue.close()
