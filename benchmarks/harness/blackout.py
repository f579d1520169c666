"""Blackout: servers are out of a worker's reach for a while, under load; what does it cost?"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from workers.journal import Journal

from harness.figure import NotMeasured
from harness.site import Load, Side, Site, site
from harness.worker import Worker

#: Handled before the lights go out, so that everything is connected.
WARM = 20
#: What was held is worked off, and the last retry comes, long before (s).
PATIENCE = 120.0
LOOK = 0.005
#: How the lines begin that an event brings, whether or not a server is away.
USUAL = ("event_sent_to_dlq", "retrying_after_failure", "process_lost", "Task ")


class Cost(NamedTuple):
    """What one outage cost: seconds, lines of the log since it began, events."""

    away: float
    recovered: float
    our_lines: int
    others_lines: int
    cpu: float
    handled_meanwhile: int
    lost: int
    repeated: int


def blackout(
    side: Side, load: Load, fail: Callable[[], None], mend: Callable[[], None], seconds: float
) -> Cost:
    """Publish *load* while *fail* holds for *seconds*; count when every event has its end.

    Events are published past all cables, at their own pace. Raises NotMeasured if the worker ends.
    """
    with site(side, load) as at, at.worker() as worker, ThreadPoolExecutor(1) as aside:
        worker.wait_ready()
        journal = Journal(at.folder / "journal")
        published = aside.submit(_publish, at)
        _until(lambda: len(journal) >= WARM, worker)
        said, cpu, before, began = _state(worker, journal)
        fail()
        time.sleep(seconds)
        _, cpu_then, then, _ = _state(worker, journal)
        mend()
        mended = time.monotonic()
        _until(lambda: _handled_after(journal, mended), worker)
        lost = load.events - len(_ends(at, worker, journal, published))
        ours, others = _complaints(worker.log()[said:])
        numbers = [start.number for start in journal]
        return Cost(
            away=mended - began,
            recovered=_handled_after(journal, mended)[0] - mended,
            our_lines=ours,
            others_lines=others,
            cpu=cpu_then - cpu,
            handled_meanwhile=then - before,
            lost=lost,
            repeated=len(numbers) - len(set(numbers)),
        )


def _publish(at: Site) -> None:
    at.run("workers.publish", at.side.app, str(at.load.events), BENCH_BROKER=at.load.broker)


def _state(worker: Worker, journal: Journal) -> tuple[int, float, int, float]:
    return len(worker.log()), worker.cpu_seconds(), len(journal), time.monotonic()


def _until(truth: Callable[[], object], worker: Worker) -> None:
    deadline = time.monotonic() + PATIENCE
    while not truth():
        worker.check()
        if time.monotonic() > deadline:
            msg = f"the worker did not go on within {PATIENCE:g} s:\n{worker.log()[-2000:]}"
            raise NotMeasured(msg)
        time.sleep(LOOK)


def _handled_after(journal: Journal, moment: float) -> list[float]:
    return sorted(start.moment for start in journal if start.moment >= moment)


def _ends(at: Site, worker: Worker, journal: Journal, published: Future[None]) -> set[int]:
    """Return which events were handled or are letters, once that are all or time is up."""
    published.result()
    deadline, found = time.monotonic() + PATIENCE, set[int]()
    while time.monotonic() < deadline:
        worker.check()
        found |= {start.number for start in journal}
        found |= {int(number) for number in at.run(at.side.app).split()}
        if len(found) >= at.load.events:
            break
        time.sleep(0.5)
    return found


def _complaints(text: str) -> tuple[int, int]:
    """Count the lines of warnings and errors that are about no single event: ours, others'."""
    ours = others = 0
    for line in filter(str.strip, text.splitlines()):
        if not line.startswith("{"):
            others += 1
            continue
        fields = json.loads(line)
        if not str(fields["event"]).startswith(USUAL):
            is_ours = fields["logger"].startswith("angzarr")
            ours, others = ours + is_ours, others + (not is_ours)
    return ours, others
