"""Sick bay: a fleet works steadily while the dependency that it calls is sick for a while."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from workers.journal import Journal

from harness.course import Course
from harness.dependency import dependency
from harness.figure import NotMeasured
from harness.site import Load, Side, Site, site
from harness.worker import Worker

#: What waits comes back long before, once the publisher has ended (s).
PATIENCE = 180.0
#: What share of the events must be handled by the time that the outage begins.
HEALTHY = 0.8
#: Where nothing has ended for so long (s), letters are looked for.
QUIET = 3.0
ENDS = ("handled", "given-up")
JOURNALS = ("published", "runs", *ENDS)


class Plan(NamedTuple):
    """Events a second, and the seconds before, during and after the outage."""

    rate: int
    before: int
    sick: int
    after: int

    @property
    def events(self) -> int:
        """How many are published."""
        return self.rate * (self.before + self.sick + self.after)


class Stay(NamedTuple):
    """What was seen of one fleet."""

    course: Course
    #: How often the handler ran, by event.
    runs: Counter[int]
    repeated: int
    letters: int
    lost: int


def stay(side: Side, load: Load, plan: Plan, workers: int) -> Stay:
    """Publish steadily to a fleet, make its dependency sick for a while, and account for all.

    Raises NotMeasured if a worker ends by itself, or the fleet does not keep pace beforehand.
    """
    with dependency() as ill:
        side = Side(app=side.app, environment={**side.environment, "BENCH_DEPENDENCY": ill.url})
        with site(side, load) as at, _fleet(at, workers) as fleet, ThreadPoolExecutor(1) as aside:
            journals = {name: Journal(at.folder / name) for name in JOURNALS}
            publishing = aside.submit(
                at.run, "workers.publish_steadily", side.app, str(plan.rate), str(plan.events)
            )
            _until(lambda: len(journals["published"]) > 0, fleet)
            time.sleep(plan.before)
            if len(journals["handled"]) < HEALTHY * plan.rate * plan.before:
                msg = f"the fleet was not well before the outage:\n{fleet[0].log()[-2000:]}"
                raise NotMeasured(msg)
            began = ill.turn("sick")
            time.sleep(plan.sick)
            ended = ill.turn("well")
            letters = _ends(at, fleet, journals, publishing)
            first = {name: _first(journal) for name, journal in journals.items()}
            calls = [call.moment for call in ill.calls]
            runs = Counter(start.number for start in journals["runs"])
            handled = len(journals["handled"])
    course = Course(began, ended, calls, first["published"], first["handled"], first["given-up"])
    found = {*first["handled"], *first["given-up"], *letters}
    return Stay(
        course, runs, repeated=handled - len(first["handled"]), letters=len(letters),
        lost=plan.events - len(found),
    )  # fmt: skip


@contextmanager
def _fleet(at: Site, workers: int) -> Iterator[list[Worker]]:
    with ExitStack() as stack:
        fleet = []
        for _ in range(workers):
            fleet.append(at.start())
            stack.callback(fleet[-1].stop)
        for worker in fleet:
            worker.wait_ready()
        yield fleet


def _until(truth: Callable[[], object], fleet: list[Worker]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not truth():
        for worker in fleet:
            worker.check()
        if time.monotonic() > deadline:
            msg = f"the fleet did not go on within {PATIENCE:g} s:\n{fleet[0].log()[-2000:]}"
            raise NotMeasured(msg)
        time.sleep(0.01)


def _ends(
    at: Site, fleet: list[Worker], journals: dict[str, Journal], publishing: Future[str]
) -> set[int]:
    """Wait until each event has its end, or time is up; return whose letters there are."""
    publishing.result()
    deadline, letters, seen = time.monotonic() + PATIENCE, set[int](), 0
    while time.monotonic() < deadline:
        for worker in fleet:
            worker.check()
        ended = {one.number for name in ENDS for one in journals[name]}
        if len(ended | letters) >= at.load.events:
            break
        if len(ended) == seen:  # looking costs time of a processor that others may need
            letters |= {int(number) for number in at.run(at.side.app).split()}
        seen = len(ended)
        time.sleep(QUIET)
    return letters


def _first(journal: Journal) -> dict[int, float]:
    """Return when each number stood there first."""
    found: dict[int, float] = {}
    for start in journal:
        found.setdefault(start.number, start.moment)
    return found
