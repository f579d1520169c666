"""The state file: what runs, since when, on which address; read by tests/conftest.py as well."""

from __future__ import annotations

import fcntl
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from processes import Process
from server import HOME

FILE = HOME / "state.json"
_turn = threading.Lock()


@dataclass(frozen=True)
class Running:
    """A server that answers: where it came from and what must be ended to stop it."""

    name: str
    source: str
    addresses: dict[str, str]
    ports: tuple[int, ...] = ()
    processes: list[Process] = field(default_factory=list)


@contextmanager
def locked() -> Iterator[None]:
    """Keep a second command of this checkout out while servers come and go."""
    HOME.mkdir(parents=True, exist_ok=True)
    with (HOME / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def read() -> dict[str, Running]:
    """Return what the last command wrote; nothing when there is no file."""
    if not FILE.exists():
        return {}
    return {name: _running(entry) for name, entry in json.loads(FILE.read_text()).items()}


def write(running: dict[str, Running]) -> None:
    """Replace the file as a whole, so that a reader never sees half of it."""
    fresh = FILE.with_suffix(".new")
    fresh.write_text(json.dumps({name: asdict(one) for name, one in running.items()}, indent=1))
    fresh.replace(FILE)


def add(one: Running) -> None:
    """Record one more server; the threads that start servers take turns."""
    with _turn:
        write(read() | {one.name: one})


def _running(entry: dict[str, Any]) -> Running:
    processes = [Process(**process) for process in entry["processes"]]
    return Running(**{**entry, "ports": tuple(entry["ports"]), "processes": processes})
