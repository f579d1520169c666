"""Ports for the servers: the same each time, below those of outgoing connections."""

from __future__ import annotations

import socket
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from server import LOOPBACK

#: Outgoing connections use 32768 and up; a server that restarts must find its port free there.
FIRST, LAST = 20_000, 32_000


def choose(counts: list[int], checkout: Path) -> list[tuple[int, ...]]:
    """Return free ports, one tuple for each count; two checkouts look in different places."""
    with ExitStack() as held:
        candidates = _free(checkout, held)
        return [tuple(next(candidates) for _ in range(count)) for count in counts]


def _free(checkout: Path, held: ExitStack) -> Iterator[int]:
    start = zlib.crc32(str(checkout).encode()) % (LAST - FIRST)
    for step in range(LAST - FIRST):
        port = FIRST + (start + step) % (LAST - FIRST)
        if _claim(port, held):
            yield port
    raise RuntimeError(f"no free port between {FIRST} and {LAST} on {LOOPBACK}")


def _claim(port: int, held: ExitStack) -> bool:
    probe = held.enter_context(socket.socket())
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        probe.bind((LOOPBACK, port))
        probe.listen()
    except OSError:
        return False
    return True
