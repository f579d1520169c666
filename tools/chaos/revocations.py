"""Revocations: who was told that an event is revoked, and who may run it all the same. Pure.

Celery broadcasts a revocation to the workers that are up, and a worker keeps it in memory alone.
So an event that was revoked before it was sent may run on a worker that started later, and on one
that the broadcast did not reach for a reason on record. On no other. Where processes are consumers
of their own, each hears for itself: one that is not known to have run something before the
broadcast may have started later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from chaos.disturbances import RETURN, Circumstances
from chaos.history import Run
from chaos.rules import Breach

IGNORED = "revocation ignored"


@dataclass(frozen=True, slots=True, kw_only=True)
class Revocation:
    """A broadcast from *start* to *end*, after which the event was sent.

    `up`: the workers that were ready at its start; `heard`: those that confirmed it. It is repeated
    until all have, those that start meanwhile as well, or until that takes too long.
    """

    start: float
    end: float
    up: frozenset[str]
    heard: frozenset[str]


def ignored(
    event: str,
    runs: Sequence[Run],
    told: Revocation,
    around: Circumstances,
    known_since: Mapping[int, float],
) -> Iterator[Breach]:
    """Yield the *runs* of a revoked *event* that its revocation should have kept from beginning.

    *known_since*: when each process began the first thing that it ran.
    """
    for run in runs:
        if run.worker in around.apart and known_since[run.pid] >= told.start:
            continue
        if run.worker in told.heard:
            text = f"{run.worker} ran it and had confirmed that it is revoked"
        elif run.worker in told.up and not _missed(run.worker, told, around):
            text = f"{run.worker} ran it and did not hear that it is revoked, undisturbed"
        else:
            continue
        yield Breach(kind=IGNORED, event=event, text=text)


def _missed(worker: str, told: Revocation, around: Circumstances) -> bool:
    """Tell whether something on record may have kept the broadcast from *worker*."""
    struck = any(
        one.worker in ("", worker) and one.start <= told.end and one.end >= told.start
        for one in around.disturbances
    )
    return struck or any(
        not one.in_part and one.start <= told.end and one.end + RETURN >= told.start
        for one in around.outages
    )
