"""Letter kills: the analysis worker is killed again and again while it reads a full queue."""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from bare.side import Backend
from sqlalchemy import create_engine, text

from angzarr.dead_letters.letter import Reason
from harness import servers
from harness.figure import NotMeasured
from harness.letter_rates import fill, letter
from harness.worker import Worker

#: What a killed worker held comes back within seconds; nothing new for so long (s) is the end.
QUIET = 90.0
LOOK = 0.2


class Account(NamedTuple):
    """What the ledger says in the end, of so many letters."""

    letters: int
    missing: int
    #: Entries beyond one for each letter.
    duplicates: int
    seconds: float


def read_under_fire(backend: Backend, *, letters: int, kills: int, seed: int) -> Account:
    """Fill a queue, let analysis workers read it, kill all but the last, and look at the ledger."""
    chance = random.Random(seed)
    domain = fill(backend, letters, held)
    with servers.database() as ledger, _folder(backend, ledger) as environment:
        began = time.monotonic()
        with closing(_Ledger(ledger)) as entries:
            for kill in range(kills):
                _live_and_die(
                    environment, domain, entries, letters * (kill + chance.random()) / kills
                )
            with _worker(environment, domain) as worker:
                _finish(worker, entries, letters)
            took = time.monotonic() - began
            end = entries.count()
    return Account(letters, letters - end.events, end.rows - end.events, took)


def held(domain: str, number: int) -> Any:
    """Return a letter that the analysis worker holds for a person."""
    one = letter(domain, number)
    return replace(one, reason=Reason.REFUSED, error_type="GiveUp", category="client")


class _Count(NamedTuple):
    events: int
    rows: int


class _Ledger:
    """The ledger's tables, looked at by SQL of our own."""

    def __init__(self, url: str) -> None:
        self._engine = create_engine(url)

    def count(self) -> _Count:
        """Return distinct events and entries; nothing before the tables are."""
        query = "select count(distinct event_id), count(*) from ledger_entries"
        with self._engine.connect() as connection:
            if connection.execute(text("select to_regclass('ledger_entries')")).scalar() is None:
                return _Count(0, 0)
            return _Count(*connection.execute(text(query)).one())

    def close(self) -> None:
        self._engine.dispose()


@contextmanager
def _folder(backend: Backend, ledger: str) -> Iterator[dict[str, str]]:
    with tempfile.TemporaryDirectory(prefix="angzarr-bench-letters-") as folder:
        yield {
            **os.environ,
            **backend.environment,
            "ANGZARR_LEDGER": ledger,
            "ANGZARR_STORE": ledger,
            "BENCH_BROKER": servers.address(servers.REDIS),
            "BENCH_FOLDER": folder,
        }


@contextmanager
def _worker(environment: dict[str, str], domain: str) -> Iterator[Worker]:
    command = [
        sys.executable, "-m", "angzarr", "-A", "workers.letters_app",
        "dlq", "analyze", "--domain", domain,
    ]  # fmt: skip
    known = {**environment, "ANGZARR_DLQ__DOMAINS": json.dumps([domain])}
    worker = Worker(command, known, Path(environment["BENCH_FOLDER"]) / "log")
    try:
        yield worker
    finally:
        worker.kill()


def _live_and_die(environment: dict[str, str], domain: str, entries: _Ledger, until: float) -> None:
    """Run a worker until the ledger holds so many entries, and at least one of its own."""
    until = max(until, entries.count().rows + 1)
    with _worker(environment, domain) as worker:
        deadline = time.monotonic() + QUIET
        while entries.count().rows < until:
            worker.check()
            if time.monotonic() > deadline:
                msg = f"{domain}: filed {entries.count()} of {until}:\n{worker.log()[-2000:]}"
                raise NotMeasured(msg)
            time.sleep(LOOK)


def _finish(worker: Worker, entries: _Ledger, letters: int) -> None:
    seen, changed = -1, time.monotonic()
    while (count := entries.count()).events < letters and time.monotonic() - changed < QUIET:
        worker.check()
        if count.rows != seen:
            seen, changed = count.rows, time.monotonic()
        time.sleep(LOOK)
