"""Entries as JSON, for programs. Field names are those of spec A2 and do not change.

The command line's `--json` and the HTTP API say the same.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from datetime import datetime
from functools import partial
from typing import Any, Final

from angzarr.analysis.ledger.entry import Entry, EntryDetail, Unreadable
from angzarr.analysis.ledger.ledger import FailureStats, Page

#: How the ledger works inside is nobody else's business.
_PRIVATE: Final = ("wake_at", "letter_replay", "published_at")
#: Bits of a whole number up to which it is written in digits: Python refuses more than 4,300.
_LONGEST_INT: Final = 14_000
#: What is told of an entry, in this order; new ones come at the end.
FIELDS: Final = (
    *(one.name for one in fields(Entry) if one.name not in _PRIVATE),
    "projection_name",
)


#: Levels of a value that are told where all of them are too many to write.
_DEEPEST: Final = 100
_DEEPER: Final = "[…]"


def json_text(value: object, *, indent: int | None = None, is_ascii: bool = True) -> str:
    """Return *value* as one JSON document, whatever it holds; in ASCII unless told otherwise.

    A number that JSON does not know or Python does not write is its name, a key that is no text is
    written as one, and what is nested too deep to be written is cut below `_DEEPEST` levels.
    """
    write = partial(json.dumps, indent=indent, default=_text, ensure_ascii=is_ascii)
    try:
        return write(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return write(_plain(value, _DEEPEST))


def _plain(value: object, levels: int) -> object:
    """Return *value* as what JSON can say of it, to so many *levels*."""
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
    """Return *entry* as a JSON object."""
    return {name: getattr(entry, name) for name in FIELDS}


def seen_json(entry: Entry, behind: Mapping[str, int]) -> dict[str, Any]:
    """Return *entry* with how many later events wait *behind* it; null: none, or not known."""
    return entry_json(entry) | {"events_behind": behind.get(entry.id)}


def page_json(page: Page, behind: Mapping[str, int]) -> dict[str, Any]:
    """Return *page* as a JSON object; `next` is the value for --after, or null."""
    entries = [seen_json(entry, behind) for entry in page.entries]
    return {"entries": entries, "next": page.next or None}


def detail_json(detail: EntryDetail, behind: Mapping[str, int]) -> dict[str, Any]:
    """Return everything about an entry as a JSON object."""
    return seen_json(detail.entry, behind) | {
        "event_data": detail.event_data,
        "mismatch": detail.mismatch and detail.mismatch.told(),
        "error_stacktrace": detail.error_stacktrace,
        "context": dict(detail.context),
        "message": _message(detail),
        "history": [asdict(line) for line in detail.history],
    }


def stats_json(stats: FailureStats) -> dict[str, Any]:
    """Return *stats* as a JSON object."""
    return asdict(stats)


def results_json(results: Iterable[tuple[Entry, str]]) -> list[dict[str, Any]]:
    """Return what became of each entry; `problem` is null where it was done."""
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
