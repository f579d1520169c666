"""Export: entries and letters as JSON and as lines of JSON or CSV, for programs (A5).

The command line's `--json` and the HTTP API say the same. Field names are those of spec A2 and do
not change. A letter is exported as it lies in the ledger: redacted and sealed as it was filed.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import datetime
from enum import StrEnum
from functools import partial
from itertools import chain, islice
from typing import Any, Final

from angzarr.analysis.ledger.entry import Entry, EntryDetail
from angzarr.analysis.ledger.failure import Failure, Unreadable
from angzarr.analysis.ledger.ledger import EntryPage, FailureStats, Ledger
from angzarr.dead_letters.codec import JSON_CONTENT_TYPE, encode, to_line
from angzarr.dead_letters.queue import Receipt
from angzarr.runtime.csv_lines import csv_line

#: The inner workings of the ledger are not exported.
_PRIVATE: Final = ("wake_at", "letter_replay", "published_at")
#: Bits of a whole number up to which it is written in digits: Python refuses more than 4,300.
_LONGEST_INT: Final = 14_000
#: The exported fields of an entry, in this order; new ones come at the end.
FIELDS: Final = (
    *(one.name for one in fields(Entry) if one.name not in _PRIVATE),
    "projection_name",
)


#: Levels of a value that are written where all of them are too many to write.
_DEEPEST: Final = 100
_DEEPER: Final = "[…]"


def json_text(value: object, *, indent: int | None = None, is_ascii: bool = True) -> str:
    """*value* as one JSON document, whatever it holds; in ASCII unless *is_ascii* is false.

    A number that JSON does not know or Python does not write is its name, a key of another type is
    written as a text, and levels below `_DEEPEST` that are too deep to be written are cut.
    """
    write = partial(json.dumps, indent=indent, default=_text, ensure_ascii=is_ascii)
    try:
        return write(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return write(_plain(value, _DEEPEST))


def _plain(value: object, levels: int) -> object:
    """*value* as what JSON can say of it, to so many *levels*."""
    if isinstance(value, Mapping | list | tuple) and not levels:
        return _DEEPER
    if isinstance(value, Mapping):
        return {_key(key): _plain(one, levels - 1) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one, levels - 1) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and value.bit_length() > _LONGEST_INT:
        return hex(value)
    return value


def _key(key: object) -> str:
    return key if isinstance(key, str) else _text(key)


def entry_json(entry: Entry) -> dict[str, Any]:
    """*entry* as a JSON object."""
    return {name: getattr(entry, name) for name in FIELDS}


def seen_json(entry: Entry, behind: Mapping[str, int]) -> dict[str, Any]:
    """*entry* with how many later events wait *behind* it; null: none, or not known."""
    return entry_json(entry) | {"events_behind": behind.get(entry.id)}


def entry_page_json(page: EntryPage, behind: Mapping[str, int]) -> dict[str, Any]:
    """*page* as a JSON object; `next` is the value for --after, or null."""
    entries = [seen_json(entry, behind) for entry in page.entries]
    return {"entries": entries, "next": page.next or None}


def entry_detail_json(detail: EntryDetail, behind: Mapping[str, int]) -> dict[str, Any]:
    """Everything about an entry as a JSON object."""
    return seen_json(detail.entry, behind) | {
        "event_data": detail.event_data,
        "mismatch": detail.mismatch and detail.mismatch.told(),
        "error_stacktrace": detail.error_stacktrace,
        "context": dict(detail.context),
        "message": _message(detail),
        "history": [asdict(line) for line in detail.history],
    }


def stats_json(stats: FailureStats) -> dict[str, Any]:
    """*stats* as a JSON object."""
    return asdict(stats)


def results_json(results: Iterable[tuple[Entry, str]]) -> list[dict[str, Any]]:
    """The results of all entries; `problem` is null where it was done."""
    return [
        {"id": entry.id, "event_id": entry.event_id, "problem": problem or None}
        for entry, problem in results
    ]


def _message(detail: EntryDetail) -> dict[str, Any]:
    failure = detail.failure
    if isinstance(failure, Unreadable):
        record = {"record": failure.record.as_json()} if failure.record else {}
        return {"raw": _bytes(failure.raw), "content_type": failure.content_type, **record}
    message = failure.message
    return {
        "queue": message.queue,
        "headers": dict(message.headers),
        "body": _bytes(message.body),
        "content_type": message.content_type,
        "payload": asdict(failure.payload) if failure.payload else None,
        **({"envelope": _bytes(failure.envelope)} if failure.envelope else {}),
    }


def _bytes(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return f"base64:{base64.b64encode(raw).decode()}"


def _text(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    return _bytes(value) if isinstance(value, bytes) else str(value)


class Format(StrEnum):
    """How lines are written."""

    JSONL = "jsonl"
    CSV = "csv"


#: Letters that are in memory at a time, and their bytes together; a larger one is there alone.
_AT_ONCE: Final = 20
_BYTES_AT_ONCE: Final = 1024 * 1024


def entry_lines(entries: Iterable[Entry], form: Format) -> Iterator[bytes]:
    """*entries* as lines with their ends; CSV has its columns first."""
    if form is Format.CSV:
        return chain([csv_line(FIELDS)], (_cells(entry) for entry in entries))
    return (json_text(entry_json(entry)).encode() + b"\n" for entry in entries)


def letter_lines(ledger: Ledger, entries: Iterable[Entry]) -> Iterator[bytes]:
    """The letters of *entries* as lines that `dlq import` reads.

    An entry that was removed meanwhile has none any more.
    """
    left = iter(entries)
    while some := list(islice(left, _AT_ONCE)):
        sizes = ledger.letter_sizes([entry.id for entry in some])
        for few in _within([entry.id for entry in some], sizes):
            yield from _lines(ledger, few)


def _lines(ledger: Ledger, entry_ids: Sequence[str]) -> Iterator[bytes]:
    details = dict(ledger.open_all(entry_ids))
    for entry_id in entry_ids:
        if (detail := details.pop(entry_id, None)) is not None:
            yield to_line(_receipt(detail.failure))


def _within(entry_ids: Sequence[str], sizes: Mapping[str, int]) -> Iterator[list[str]]:
    """*entry_ids* in parts of so many bytes, a larger letter in a part of its own."""
    few: list[str] = []
    held = 0
    for entry_id in entry_ids:
        size = sizes.get(entry_id, 0)
        if few and held + size > _BYTES_AT_ONCE:
            yield few
            few, held = [], 0
        few.append(entry_id)
        held += size
    if few:
        yield few


def _receipt(failure: Failure) -> Receipt:
    if isinstance(failure, Unreadable):
        return Receipt(
            domain=failure.domain,
            letter=None,
            raw=failure.raw,
            content_type=failure.content_type,
            problem=failure.problem,
            record=failure.record,
        )
    encoded = encode(failure)
    return Receipt(
        domain=failure.domain,
        letter=failure if encoded.content_type == JSON_CONTENT_TYPE else None,
        raw=encoded.body,
        content_type=encoded.content_type,
    )


def _cells(entry: Entry) -> bytes:
    told = entry_json(entry)
    return csv_line(told[name] for name in FIELDS)
