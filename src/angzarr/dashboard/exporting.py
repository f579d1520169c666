"""Exporting: entries or letters as a stream; the API and the pages do it by this."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Final, Self

from pydantic import Field, model_validator

from angzarr.analysis.ledger.export import Format, entry_lines, letter_lines
from angzarr.analysis.replay.bulk_actions import in_status
from angzarr.dashboard.access import Caller
from angzarr.dashboard.api.asked import Filter
from angzarr.dashboard.desk import Desk
from angzarr.dashboard.problem import Problem
from angzarr.dashboard.streams import Stream, Streams
from angzarr.settings.dashboard import Role

#: Entries of one answer at most; the command line writes any number.
MOST_EXPORTED: Final = 100_000
#: Entries of one answer where the caller says nothing.
EXPORTED: Final = 10_000
#: What each format is called.
TYPES: Final = {Format.JSONL: "application/x-ndjson", Format.CSV: "text/csv; charset=utf-8"}
#: As many streams counts one of letters: each may have a letter of 32 MiB in hand.
_LETTERS_COUNT: Final = 10
#: Bytes that are sent at once.
_CHUNK: Final = 64 * 1024


class ExportQuery(Filter):
    """Which entries, and how; those that failed last first."""

    format: Format = Format.JSONL
    letters: bool = Field(default=False, description="Letters, as `dlq import` reads them.")
    limit: int = Field(default=EXPORTED, ge=1, le=MOST_EXPORTED)

    @model_validator(mode="after")
    def _letters_are_json(self) -> Self:
        if self.letters and self.format is not Format.JSONL:
            msg = "letters are JSON lines: leave format=csv out"
            raise ValueError(msg)
        return self


def export(desk: Desk, streams: Streams, asked: ExportQuery, caller: Caller) -> Stream:
    """Return the stream of what is asked for; a ledger that is away is told before it begins.

    One that goes away amid it breaks the connection off: half an answer never looks whole.
    """
    if asked.letters and not caller.role.covers(Role.OPERATOR):
        raise Problem(403, "role", f"letters take the role {Role.OPERATOR}; entries do not")
    found = islice(in_status(desk.ledger, asked.wanted(), asked.status), asked.limit)
    entries = chain(list(islice(found, 1)), found)  # the first page is read now
    lines = (
        letter_lines(desk.ledger, entries) if asked.letters else entry_lines(entries, asked.format)
    )
    what = "letters" if asked.letters else "entries"
    name = f"angzarr-{what}.{asked.format}"
    return streams.held(
        caller.name,
        _chunks(lines),
        counts=_LETTERS_COUNT if asked.letters else 1,
        media_type=TYPES[asked.format],
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


def _chunks(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Put lines together, and take large ones apart: each chunk is a step of another thread."""
    held = bytearray()
    for line in lines:
        for at in range(0, len(line), _CHUNK):
            held += line[at : at + _CHUNK]
            if len(held) >= _CHUNK:
                yield bytes(held)
                held.clear()
    yield bytes(held)
