"""Signing: HMAC-SHA256 over what a replay of a letter sends, and what decides of it (spec L3).

Pure. The signed forms are made of values as they are read, so that they are the same for a letter
in JSON, in binary and in the ledger. docs/reference/dead-letters.md writes them down; they never
change.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, NamedTuple

from angzarr.dead_letters.letter import DeadLetter
from angzarr.dead_letters.metadata import (
    FULL_SIGNATURE,
    REDACTED,
    SIGNATURE,
    SIGNATURES,
    WORKER_FINGERPRINT,
)
from angzarr.dead_letters.text import to_json_text, valid_text
from angzarr.dead_letters.wire_form import from_wire, to_wire

#: Each begins a signed form: what a replay sends; that and all that a decision rests on.
_SENT: Final = b"angzarr-letter-1"
_FULL: Final = b"angzarr-letter-2"
_LENGTH_BYTES: Final = 8


class Trust(StrEnum):
    """What a signature is worth here."""

    VALID = "valid"
    UNSIGNED = "unsigned"
    UNKNOWN_KEY = "unknown key"
    FORGED = "forged"
    #: No key is configured here with which it could be verified.
    UNVERIFIED = "not verified"


class SignatureVerdict(NamedTuple):
    """The validity of a letter's signature, and the id of the key it names."""

    trust: Trust
    key: str = ""
    #: Whether it covers all that a decision rests on, and not only what a replay sends.
    full: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Signatures:
    """The signing keys by id; *current* signs, each of them verifies."""

    keys: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    current: str | None = None

    def sign(self, letter: DeadLetter) -> DeadLetter:
        """*letter* with both signatures in place of any other, or as it is without a key.

        Workers of a release that knows the first alone verify that one.
        """
        if self.current is None:
            return letter
        as_read = from_wire(to_wire(letter))
        signatures = {
            SIGNATURE: self.signature(self.current, signed_form(as_read)),
            FULL_SIGNATURE: self.signature(self.current, full_form(as_read)),
        }
        return replace(letter, metadata={**letter.metadata, **signatures})

    def judge(self, letter: DeadLetter) -> SignatureVerdict:
        """The verdict on the signature of *letter*, as it was read.

        Where it has both, the one that covers more is judged, and the other says nothing.
        """
        full = letter.metadata.get(FULL_SIGNATURE, "")
        said = full or letter.metadata.get(SIGNATURE, "")
        form = full_form if full else signed_form
        verdict = self.verify(said, lambda: form(letter))
        return verdict._replace(full=bool(full) and verdict.trust is Trust.VALID)

    def signature(self, key: str, form: bytes) -> str:
        """The signature of *form* by the key that is called *key*; raises KeyError."""
        return f"{key}:{_mac(self.keys[key], form)}"

    def verify(self, said: str, form: Callable[[], bytes]) -> SignatureVerdict:
        """The verdict on the signature *said*; *form* is asked for only where it counts."""
        key, _, mac = said.rpartition(":")
        if not self.keys:
            return SignatureVerdict(Trust.UNVERIFIED if said else Trust.UNSIGNED, key)
        if not said:
            return SignatureVerdict(Trust.UNSIGNED)
        if (secret := self.keys.get(key)) is None:
            return SignatureVerdict(Trust.UNKNOWN_KEY, key)
        right = hmac.compare_digest(_mac(secret, form()).encode(), mac.encode("utf-8", "replace"))
        return SignatureVerdict(Trust.VALID if right else Trust.FORGED, key)


def body_digest(letter: DeadLetter) -> bytes:
    """The SHA-256 of the body that a replay of *letter* would send, wherever it lies."""
    if letter.payload is not None and letter.is_elsewhere:
        return bytes.fromhex(letter.payload.body_sha256)
    return hashlib.sha256(letter.message.body).digest()


def signed_form(letter: DeadLetter) -> bytes:
    """The form that `signature` covers: each field by name and value, lengths before both."""
    return b"".join([_SENT, *(_part(part) for field in _fields(letter) for part in field)])


def full_form(letter: DeadLetter) -> bytes:
    """The form that `signature_2` covers: the same, and fields that a decision rests on."""
    fields = (*_fields(letter), *_deciding(letter))
    return b"".join([_FULL, *(_part(part) for field in fields for part in field)])


def _deciding(letter: DeadLetter) -> Iterator[tuple[str, str | None]]:
    """Yield what rules, groups, limits and people go by."""
    for name in ("category", "error_type", "error_code", "error_message", "error_stack"):
        yield name, getattr(letter, name)
    yield "explanation", letter.explanation
    yield "attempts", str(letter.attempts)
    for name in ("first_attempt_at", "last_attempt_at", "sent_to_dlq_at"):
        at = getattr(letter, name)
        yield name, None if at is None else at.isoformat(timespec="microseconds")
    # Where it was filed it may be in a group of another name.
    yield "fingerprint", letter.metadata.get(WORKER_FINGERPRINT, letter.fingerprint)
    for name in ("component", "component_type", "worker", "version"):
        yield name, getattr(letter, name)
    not_signed = SIGNATURES | {WORKER_FINGERPRINT}
    rest = {name: value for name, value in letter.metadata.items() if name not in not_signed}
    yield "metadata", _canonical(rest)


def _fields(letter: DeadLetter) -> Iterator[tuple[str, bytes | str | None]]:
    message, event = letter.message, letter.event
    yield "id", letter.id
    yield "domain", letter.domain
    yield "handler", letter.handler
    yield "reason", letter.reason.value
    yield "replay", str(letter.replay)
    yield "redacted", letter.metadata.get(REDACTED)
    yield "queue", message.queue
    yield "exchange", message.exchange
    yield "routing_key", message.routing_key
    yield "priority", None if message.priority is None else str(message.priority)
    yield "content_type", message.content_type
    yield "content_encoding", message.content_encoding
    yield "headers", _canonical(message.headers)
    yield "properties", _canonical(message.properties)
    yield "body", body_digest(letter)
    if letter.mismatch is not None:  # no letter of before had one
        for name, number in letter.mismatch._asdict().items():
            yield f"mismatch.{name}", str(number)
    if event is None:
        return
    for name in ("id", "type", "domain", "root", "edition", "correlation_id", "causation_id"):
        yield f"event.{name}", getattr(event, name)
    yield "event.tenant_id", event.tenant_id
    yield "event.traceparent", event.traceparent
    yield "event.sequence", None if event.sequence is None else str(event.sequence)
    yield "event.priority", event.priority.value
    yield "event.config_pins", _canonical(event.config_pins)
    at = event.occurred_at
    yield "event.occurred_at", None if at is None else at.isoformat(timespec="microseconds")


def _part(value: bytes | str | None) -> bytes:
    """*value* after its length in bytes plus one, big-endian; nothing has the length 0."""
    if value is None:
        return bytes(_LENGTH_BYTES)
    raw = valid_text(value).encode() if isinstance(value, str) else value
    return (len(raw) + 1).to_bytes(_LENGTH_BYTES) + raw


def _canonical(values: Mapping[str, Any]) -> str:
    """The JSON text of *values* as letters have it, its names sorted, without spaces."""
    return json.dumps(json.loads(to_json_text(dict(values))), sort_keys=True, separators=(",", ":"))


def _mac(secret: bytes, form: bytes) -> str:
    mac = hmac.digest(secret, form, "sha256")
    return base64.urlsafe_b64encode(mac).decode().rstrip("=")
