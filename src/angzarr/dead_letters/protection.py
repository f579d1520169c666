"""Protection: what a letter passes before it leaves its worker, and before it is replayed.

It leaves redacted, sealed (its message travels encrypted, whole, as its own body) and signed.
Before a replay `Clearance` verifies and opens it, and gives a letter of another
system the message that is sent here.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, Protocol

from angzarr.dead_letters.foreign_replay import Routes, letter_for, routed
from angzarr.dead_letters.letter import DeadLetter, Distrusted, Refusal
from angzarr.dead_letters.metadata import SIGNATURES
from angzarr.dead_letters.queue import DeadLetterQueue, RawLetter, Receipt, put_raw
from angzarr.dead_letters.redaction import Redaction, hides, without_reprs
from angzarr.dead_letters.sealed_letters import body_key
from angzarr.dead_letters.signing import Signatures, SignatureVerdict, Trust
from angzarr.dead_letters.task_message import read_message, write_message
from angzarr.events.event import Event, Message
from angzarr.payloads.body_sealer import SEALED
from angzarr.runtime.failures import is_machine_fault
from angzarr.wire.worker_pb2 import TaskMessage

#: What the body of a sealed letter says it is: JWE (RFC 7516), compact, around a TaskMessage.
SEALED_TYPE: Final = 'application/jose; messageType="angzarr.worker.TaskMessage"'


class Cipher(Protocol):
    """Encrypts and authenticates. Neither verb shows a key, whatever happens."""

    def seal(self, plain: bytes, letter_id: str, /) -> bytes:
        """*plain* sealed for this letter and no other; the same again when repeated."""

    def open(self, sealed: bytes, letter_id: str, /) -> bytes | Refusal:
        """The bytes that were sealed for this letter, or why they cannot be opened."""


def is_sealed(letter: DeadLetter) -> bool:
    """True if the body of *letter* is a sealed message."""
    return letter.message.content_type == SEALED_TYPE


def seal(letter: DeadLetter, message: Message, event: Event | None, cipher: Cipher) -> DeadLetter:
    """*letter* with *message* and *event*, which a replay is to see, in its sealed body.

    The rest stays as it is for people, who are shown the letter's own event.
    """
    plain = write_message(message, event).SerializeToString(deterministic=True)
    sealed = replace(
        letter.message,
        body=cipher.seal(plain, letter.id),
        content_type=SEALED_TYPE,
        content_encoding="us-ascii",
    )
    return replace(letter, message=sealed)


def without_payload(letter: DeadLetter) -> DeadLetter:
    """*letter* with nothing of its payload but the body, which is sealed."""
    headers = without_reprs(letter.message.headers, SEALED)
    event = letter.event and replace(letter.event, data=SEALED)
    return replace(letter, message=replace(letter.message, headers=headers), event=event)


def opened(letter: DeadLetter, cipher: Cipher | None) -> DeadLetter | Refusal:
    """*letter* with the message and the event that were sealed, or why not.

    Raises what a machine lacks, such as MemoryError: the letter may be opened later.
    """
    if cipher is None:
        return Refusal(
            f"it is sealed with the key {key_id(letter)!r}: set dlq.encryption_keys to open it"
        )
    plain = cipher.open(letter.message.body, letter.id)
    if isinstance(plain, Refusal):
        return plain
    try:
        message, event, *_ = read_message(TaskMessage.FromString(plain))
    except Exception as error:  # who has the key may write anything
        if is_machine_fault(error):
            raise
        return Refusal(f"its sealed body is not a TaskMessage ({type(error).__name__})")
    return replace(letter, message=message, event=event)


def key_id(letter: DeadLetter) -> str:
    """The id of the key that sealed *letter*, as far as it says so."""
    head = letter.message.body.partition(b".")[0][:1024]
    try:
        header: Any = json.loads(base64.urlsafe_b64decode(head + b"=" * (-len(head) % 4)))
        return str(header["kid"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return ""


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
        """*letter* as it may leave; the same bytes each time, for ids and duplicates.

        For letters that this process wrote. One that others wrote, or that was signed before, is
        left as it is: a signature does not vouch for others' letters. A message decides nothing
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


_WHY: Final = {
    Trust.UNSIGNED: (
        "it is not signed: another system wrote it, or a worker without dlq.signing_keys"
        " (dlq.accept_unsigned: true lets such letters pass)"
    ),
    Trust.UNKNOWN_KEY: "it is signed with the key {key!r}, which is not among dlq.signing_keys",
    Trust.FORGED: "its signature is not that of the key {key!r}: it was forged or changed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Clearance:
    """Verifies, opens, and gives a letter of others its message."""

    signatures: Signatures = field(default_factory=Signatures)
    accept_unsigned: bool = False
    cipher: Cipher | None = None
    routes: Routes = field(default_factory=dict)

    def __call__(self, letter: DeadLetter) -> DeadLetter | Refusal:
        """*letter* with the message that a replay sends, or why there is none."""
        if self.signatures.keys:  # without one nothing is judged
            verdict = self.signatures.judge(letter)
            if not self._passes(verdict):
                return Distrusted(_WHY[verdict.trust].format(key=verdict.key[:100]))
        if letter.envelope:  # with a task it is ours, and has more to say than this release knows
            return letter if letter.message.task else routed(letter, self.routes)
        if is_sealed(letter):  # a body that lies elsewhere is opened once it was fetched
            return letter if letter.is_elsewhere else opened(letter, self.cipher)
        if hides(letter):
            return Refusal(
                "values of its message were removed and no key was there to seal them:"
                " publish the event again, and see dlq.encryption_keys"
            )
        return letter

    def vouches(self, letter: DeadLetter) -> bool:
        """True if the failure of *letter* is signed, or need not be here."""
        if not self.signatures.keys:
            return True
        verdict = self.signatures.judge(letter)
        if verdict.trust is Trust.VALID:
            return verdict.full
        return self._passes(verdict)

    def record(self, given: RawLetter) -> DeadLetter | Refusal:
        """The record *given* as a letter with the message that a replay sends, or why not."""
        verdict = SignatureVerdict(Trust.UNSIGNED)
        if given.record is not None and not self._passes(verdict):
            return Distrusted(_WHY[verdict.trust].format(key=""))
        return letter_for(given, self.routes)

    def told(self, letter: DeadLetter) -> Mapping[str, str]:
        """The letter's protection in words for people; empty where there is none."""
        trust, key, full = self.signatures.judge(letter)
        told = {}
        if self.signatures.keys or trust is not Trust.UNSIGNED:
            told["signature"] = f"{trust}, key {key}" if key else str(trust)
            if trust is Trust.VALID and not full:
                told["signature"] += ", of the message alone"
        if is_sealed(letter):
            key = key_id(letter)
            told["sealed"] = f"key {key}" if key else "yes"
        if key := body_key(letter):
            told["encrypted"] = f"key {key}"
        return told

    def _passes(self, verdict: SignatureVerdict) -> bool:
        if not self.signatures.keys or verdict.trust is Trust.VALID:
            return True
        return self.accept_unsigned and verdict.trust is Trust.UNSIGNED
