"""Judging: what one input does to one decoder, and whether that may be."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from fair_time import fair_seconds
from fuzz.decoders import Decoder

#: Seconds of a normal processor, and bytes, that one input may take.
MOST_SECONDS = 1.0
MOST_BYTES = 100 * 2**20

_SELF = Path("/proc/self")
_KIB = re.compile(r"VmHWM:\s+(\d+) kB")


def fault(decoder: Decoder, raw: bytes) -> str:
    """Return what is wrong with what *raw* does; empty: nothing."""
    before = _forgotten_peak()
    try:
        took = fair_seconds(lambda: _read(decoder, raw), MOST_SECONDS)
    except BaseException as error:
        return f"{type(error).__name__}: {error!s:.200}, which is not declared"
    most = _peak() - before
    if took > MOST_SECONDS:
        return f"{took:.1f} s"
    return f"{most / 2**20:.0f} MiB" if most > MOST_BYTES else ""


def _read(decoder: Decoder, raw: bytes) -> None:
    with suppress(decoder.declared):
        decoder.read(raw)


def _forgotten_peak() -> int:
    """Let Linux count this process's peak of memory anew, and return it."""
    (_SELF / "clear_refs").write_text("5", encoding="ascii")
    return _peak()


def _peak() -> int:
    """Return the most bytes of memory that this process has had since."""
    found = _KIB.search((_SELF / "status").read_text(encoding="ascii"))
    assert found is not None
    return int(found[1]) * 1024
