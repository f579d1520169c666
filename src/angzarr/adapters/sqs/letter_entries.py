"""Letters as entries of a batch, within the limits of SQS and SNS. Pure, but for fresh ids."""

from __future__ import annotations

import base64
import hashlib
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from angzarr.dead_letters.codec import JSON_CONTENT_TYPE, Form, encode, partition_key
from angzarr.dead_letters.letter import DeadLetter

#: Entries that SQS and SNS take in one batch.
BATCH: Final = 10
#: The name of the message attribute that tells a letter's form.
CONTENT_TYPE: Final = "content_type"

#: Characters that SQS refuses: what XML 1.0 cannot hold.
_ILLEGAL: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
#: What SQS takes as the name of a message group.
_GROUP: Final = re.compile(r"[!-~]{1,128}")


class Entry(NamedTuple):
    """One letter, ready to be sent: its place among those put, its bytes as the service counts."""

    at: int
    domain: str
    size: int
    request: dict[str, Any]


def entry_of(at: int, letter: DeadLetter, form: Form, *, body: str, fifo: bool) -> Entry:
    """Return *letter* as an entry; *body* is what the service calls the text of a message."""
    text, content_type = as_text(letter, form)
    facts = {
        CONTENT_TYPE: content_type,
        "domain": letter.domain,
        "correlation_id": (letter.event.correlation_id or "") if letter.event else "",
    }
    attributes = {
        name: {"DataType": "String", "StringValue": value}
        for name, value in facts.items()
        if value and not _ILLEGAL.search(value)
    }
    size = len(text.encode()) + sum(
        len(name) + len("String") + len(value["StringValue"].encode())
        for name, value in attributes.items()
    )
    order = ordering(letter) if fifo else {}
    request = {"Id": str(at), body: text, "MessageAttributes": attributes, **order}
    return Entry(at, letter.domain, size, request)


def ordering(letter: DeadLetter) -> Mapping[str, str]:
    """Return what a FIFO queue orders *letter* by, and a fresh id for this one putting of it.

    Letters of one aggregate are in order; one that has none is a group of its own, since a letter
    in flight blocks those behind it. The id serves the client's own repeats of a request. It is not
    the letter's: for 5 minutes SQS confirms a known id and keeps nothing, also where that message
    has been deleted since, so that a letter moved away and back would be lost.
    """
    group = partition_key(letter) or letter.id
    return {
        "MessageGroupId": group if _GROUP.fullmatch(group) else _digest(group),
        "MessageDeduplicationId": uuid.uuid4().hex,
    }


def as_text(letter: DeadLetter, form: Form) -> tuple[str, str]:
    """Return *letter* as text and its content type: JSON, or base64 of the binary form.

    Binary, too, where the JSON has a character that SQS refuses.
    """
    body, content_type = encode(letter, form)
    if content_type == JSON_CONTENT_TYPE:
        text = body.decode()
        if not _ILLEGAL.search(text):
            return text, content_type
        body, content_type = encode(letter, Form.BINARY)
    return base64.b64encode(body).decode(), content_type


def batches(entries: Sequence[Entry], limit: int) -> Iterator[list[Entry]]:
    """Cut *entries*, in order, into batches of at most *limit* bytes."""
    batch: list[Entry] = []
    size = 0
    for entry in entries:
        if batch and (len(batch) == BATCH or size + entry.size > limit):
            yield batch
            batch, size = [], 0
        batch.append(entry)
        size += entry.size
    if batch:
        yield batch


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
