"""Joint intake: several analysis processes of one group that file the letters of one topic."""

from __future__ import annotations

import os
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from sqlalchemy import Engine, text
from workers.journal import Journal, Start

from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.ledger.schema import LEDGER
from harness import servers
from harness.figure import NotMeasured
from harness.worker import BENCHMARKS, Worker

#: Longer than any run takes (s).
PATIENCE = 180.0
#: The count that is made at each look takes some milliseconds.
LOOK = 0.3


def filed_together(domain: str, letters: int, processes: int) -> float:
    """Return letters per second that *processes* file, decide and let go while all of them do.

    Raises NotMeasured unless each letter gets its entry in the ledger. Some come twice, where a
    share of the topic changes hands.
    """
    with ExitStack() as doors:
        folder = Path(doors.enter_context(tempfile.TemporaryDirectory(prefix="angzarr-bench-")))
        url = doors.enter_context(servers.database())
        engine = build_engine(url)
        doors.callback(engine.dispose)
        LEDGER.make_ready(engine, migrate=True)
        journal = Journal(folder / "journal")
        doors.callback(journal.close)
        command = [sys.executable, "-m", "workers.file_letters", domain, str(uuid.uuid4()), url]
        environment = {
            **os.environ, "BENCH_FOLDER": str(folder), "PYTHONPATH": str(BENCHMARKS),
        }  # fmt: skip
        workers = [Worker(command, environment, folder / "log") for _ in range(processes)]
        for worker in workers:
            doors.callback(worker.kill)
        for worker in workers:
            worker.wait_ready()
        (folder / "go").touch()
        deadline = time.monotonic() + PATIENCE
        while (filed := _entries(engine)) < letters:
            for worker in workers:
                worker.check()
            if time.monotonic() > deadline:
                msg = f"{filed} of {letters} letters were filed within {PATIENCE:g} s"
                raise NotMeasured(msg)
            time.sleep(LOOK)
        return rate_together(journal, processes)


def _entries(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT count(*) FROM ledger_entries")).scalar_one())


def rate_together(turns: Iterable[Start], processes: int) -> float:
    """Return what was filed per second from each one's first turn on to the first one's last.

    Before that some wait for their share of the topic, and after it some have nothing left.
    """
    of: dict[int, list[Start]] = {}
    for turn in turns:
        of.setdefault(turn.worker, []).append(turn)
    if len(of) < processes:
        msg = f"{len(of)} of {processes} processes got letters"
        raise NotMeasured(msg)
    began = max(min(turn.moment for turn in own) for own in of.values())
    ended = min(max(turn.moment for turn in own) for own in of.values())
    if ended <= began:
        msg = f"the {processes} processes filed letters one after the other: give them more"
        raise NotMeasured(msg)
    filed = sum(turn.number for own in of.values() for turn in own if began < turn.moment <= ended)
    return filed / (ended - began)
