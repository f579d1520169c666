"""Lanes: what ordered handlers made of the events of each aggregate. Pure, but for `LanesDatabase`.

A run of an event begins after a run of the one before it in its aggregate has ended with its
effect. A worker that was taken for dead may still run what another one has gone on from: that is a
stale run, which `rules` judge. The projection writes in the transaction that moves its lane, so its
read model has every event of an aggregate once and in order, whatever happened to workers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

import psycopg

from chaos.disturbances import Circumstances
from chaos.fates import ORDERED
from chaos.history import EFFECTS, Run
from chaos.rules import Breach
from chaos.stream import Planned

DISORDER, READ_MODEL = "out of order", "read model"


class LanesDatabase:
    """The database with lanes and read model at *url*, read past angzarr."""

    def __init__(self, url: str) -> None:
        self._url = url.replace("postgresql+psycopg", "postgresql")

    def make(self) -> None:
        """Make the table of the read model."""
        with psycopg.connect(self._url) as connection:
            connection.execute("CREATE TABLE seen (id serial, root text, sequence integer)")

    def seen(self) -> list[tuple[str, int]]:
        """Return root and sequence of what the projection wrote, in the order of that."""
        return self._ask("SELECT root, sequence FROM seen ORDER BY id")

    def waiting(self) -> int:
        """Count what waits in lanes."""
        ((number,),) = self._ask("SELECT coalesce(sum(waiting), 0) FROM ordering_lanes")
        return int(number)

    def _ask(self, statement: str) -> list[tuple]:
        with psycopg.connect(self._url) as connection:
            return connection.execute(statement).fetchall()


def check_order(
    published: Sequence[Planned], runs: Sequence[Run], around: Circumstances
) -> Iterator[Breach]:
    """Yield runs that began before the event before theirs was done."""
    of_event: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        handler, event = run.pair
        if handler == ORDERED:
            of_event[event].append(run)
    for lane in _by_root(published).values():
        for before, planned in pairwise(lane):
            done = [run.closed for run in of_event[before.id] if run.how in EFFECTS and run.closed]
            for run in of_event[planned.id]:
                early = not done or run.began < min(done)
                if early and not around.is_stale(run):
                    text = f"it began on {run.worker} before {before.id} was done"
                    yield Breach(kind=DISORDER, event=planned.id, text=text)


def check_read_model(
    published: Sequence[Planned], seen: Sequence[tuple[str, int]]
) -> Iterator[Breach]:
    """Yield aggregates whose events are not in the read model once each, and in order."""
    written: dict[str, list[int]] = defaultdict(list)
    for root, sequence in seen:
        written[root].append(sequence)
    for root, lane in _by_root(published).items():
        wanted = [planned.sequence for planned in lane]
        if written[root] != wanted:
            text = f"{root} has {written[root]}, not {wanted}"
            yield Breach(kind=READ_MODEL, event=lane[0].id, text=text)


def _by_root(published: Sequence[Planned]) -> dict[str, list[Planned]]:
    lanes: dict[str, list[Planned]] = defaultdict(list)
    for planned in sorted(published, key=lambda one: one.sequence):
        if planned.root:
            lanes[planned.root].append(planned)
    return lanes
