"""Letters as entries of a batch, within the limits of SQS and SNS. Pure, but for fresh ids."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from angzarr.adapters.sqs.letter_text import CONTENT_TYPE, TRANSFER_ENCODING, as_text, is_legal
from angzarr.dead_letters.codec import Form, correlation_id, partition_key
from angzarr.dead_letters.queue import Outgoing, RawLetter

#: Entries that SQS and SNS take in one batch.
BATCH: Final = 10
#: What SQS takes as the name of a message group.
_GROUP: Final = re.compile(r"[!-~]{1,128}")


class Entry(NamedTuple):
    """One letter, ready to be sent: its place among those put, its bytes as the service counts."""

    at: int
    domain: str
    size: int
    request: dict[str, Any]


def problem_of(letter: Outgoing) -> str:
    """Return why SQS can never carry *letter*, which only bytes of others may be; else nothing."""
    if isinstance(letter, RawLetter) and letter.record is None and not _is_carried(letter):
        return "its content type has characters that AWS does not carry"
    return ""


def _is_carried(letter: RawLetter) -> bool:
    return not letter.content_type or is_legal(letter.content_type)


def entry_of(at: int, letter: Outgoing, form: Form, *, body: str, fifo: bool) -> Entry:
    """Return *letter* as an entry; *body* is what the service calls the text of a message."""
    text, content_type, transfer_encoding = as_text(letter, form)
    facts = {
        CONTENT_TYPE: content_type,
        TRANSFER_ENCODING: transfer_encoding,
        "domain": letter.domain,
        "correlation_id": correlation_id(letter),
    }
    attributes = {
        name: {"DataType": "String", "StringValue": value}
        for name, value in facts.items()
        if is_legal(value)
    }
    size = _bytes(text) + sum(
        len(name) + len("String") + _bytes(value["StringValue"])
        for name, value in attributes.items()
    )
    order = ordering(letter) if fifo else {}
    request = {"Id": str(at), body: text, "MessageAttributes": attributes, **order}
    return Entry(at, letter.domain, size, request)


def ordering(letter: Outgoing) -> Mapping[str, str]:
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


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
