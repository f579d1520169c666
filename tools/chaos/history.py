"""History: what the handlers themselves say happened, one line each, in a file of its own.

It is evidence that does not come from angzarr: a line is appended by the handler's own call, in
one write to a file opened with O_APPEND, so it outlives a kill -9 of its writer. Times are of
the machine's monotonic clock, which all its processes share.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from angzarr.errors import Postpone, Skip
from journal import as_line, whole

#: How a run ended. `DYING`: it is about to end its own process. None of them: it was cut short.
ENDED, SKIPPED, FAILED, POSTPONED, DYING = "ended", "skipped", "failed", "postponed", "dying"
#: After these the event is done with.
EFFECTS = frozenset({ENDED, SKIPPED})


class Pair(NamedTuple):
    """An event and one of its handlers: the unit of accounting."""

    handler: str
    event: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One call of a handler, as its own lines tell it."""

    pair: Pair
    attempt: int
    replay: int
    hop: int
    worker: str
    pid: int
    began: float
    #: When it wrote how it ended; None: it was cut short.
    closed: float | None = None
    how: str = ""


class Journal:
    """Appends lines to *file*; any number of processes and threads may."""

    def __init__(self, file: Path, worker: str = "") -> None:
        self._file = file
        self._worker = worker
        self._fd: int | None = None

    def write(self, what: str, **told: object) -> None:
        """Append one line."""
        os.write(self.open(), as_line({"at": time.monotonic(), "what": what, **told}))

    def open(self) -> int:
        """Return its descriptor; forked children share it, who may be refused one of their own."""
        if self._fd is None:
            self._fd = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        return self._fd

    @contextmanager
    def run(self, pair: Pair, *, attempt: int, replay: int, hop: int) -> Iterator[str]:
        """Write down that a handler began and how its call ended; gives the run's name."""
        run = uuid.uuid4().hex
        self.write(
            "began", run=run, handler=pair.handler, event=pair.event, attempt=attempt,
            replay=replay, hop=hop, worker=self._worker, pid=os.getpid(),
        )  # fmt: skip
        try:
            yield run
        except Skip:
            self.write(SKIPPED, run=run)
            raise
        except Postpone:
            self.write(POSTPONED, run=run)
            raise
        except Exception:
            self.write(FAILED, run=run)
            raise
        self.write(ENDED, run=run)


class Reader:
    """Reads the lines that *file* has got since it was last asked; any thread may ask."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._read = 0
        self._runs: dict[str, Run] = {}
        self._lock = threading.Lock()

    def runs(self) -> list[Run]:
        """Return all runs so far, in the order in which they began."""
        with self._lock:
            if self._file.exists():
                self._read_on()
            return sorted(self._runs.values(), key=lambda run: run.began)

    def _read_on(self) -> None:
        with self._file.open("rb") as lines:
            lines.seek(self._read)
            for line in lines:
                if not line.endswith(b"\n"):
                    break  # it is being written
                self._read += len(line)
                for record in whole([line]):
                    self._take(record)

    def _take(self, line: dict) -> None:
        name, at, what = line["run"], line["at"], line["what"]
        if what == "began":
            self._runs[name] = Run(
                pair=Pair(line["handler"], line["event"]), attempt=line["attempt"],
                replay=line["replay"], hop=line["hop"], worker=line["worker"],
                pid=line["pid"], began=at,
            )  # fmt: skip
        else:
            self._runs[name] = replace(self._runs[name], closed=at, how=what)
