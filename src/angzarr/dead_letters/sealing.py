"""Sealing: a letter's message travels encrypted, whole, as its own body (decisions 25)."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any, Final, Protocol

from angzarr.dead_letters.letter import DeadLetter
from angzarr.dead_letters.redaction import without_reprs
from angzarr.dead_letters.refusal import Refusal
from angzarr.dead_letters.task_message import read_message, write_message
from angzarr.events.event import Event
from angzarr.events.message import Message
from angzarr.runtime.machine_faults import is_machine_fault
from angzarr.wire.worker_pb2 import TaskMessage

#: What the body of a sealed letter says it is: JWE (RFC 7516), compact, around a TaskMessage.
SEALED_TYPE: Final = 'application/jose; messageType="angzarr.worker.TaskMessage"'
#: What stands for an event's data where all of it is sealed.
SEALED: Final = "[sealed]"


class Cipher(Protocol):
    """Encrypts and authenticates. Neither verb shows a key, whatever happens."""

    def seal(self, plain: bytes, letter_id: str, /) -> bytes:
        """Return *plain* sealed for this letter and no other; the same again when repeated."""

    def open(self, sealed: bytes, letter_id: str, /) -> bytes | Refusal:
        """Return what was sealed for this letter, or why that cannot be."""


def is_sealed(letter: DeadLetter) -> bool:
    """Tell whether the body of *letter* is a sealed message."""
    return letter.message.content_type == SEALED_TYPE


def seal(letter: DeadLetter, message: Message, event: Event | None, cipher: Cipher) -> DeadLetter:
    """Return *letter* with *message* and *event*, which a replay is to see, in its sealed body.

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
    """Return *letter* with nothing of its payload but the body, which is sealed."""
    headers = without_reprs(letter.message.headers, SEALED)
    event = letter.event and replace(letter.event, data=SEALED)
    return replace(letter, message=replace(letter.message, headers=headers), event=event)


def opened(letter: DeadLetter, cipher: Cipher | None) -> DeadLetter | Refusal:
    """Return *letter* with the message and the event that were sealed, or why not.

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
    """Return the id of the key that sealed *letter*, as far as it says so."""
    head = letter.message.body.partition(b".")[0][:1024]
    try:
        header: Any = json.loads(base64.urlsafe_b64decode(head + b"=" * (-len(head) % 4)))
        return str(header["kid"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return ""
