"""Histories made by hand, so that the checker of `make chaos` is known to be able to fail."""

from __future__ import annotations

import pytest

from chaos.disturbances import Circumstances, Disturbance, What
from chaos.evidence import Entry, Evidence
from chaos.fates import FATES, MAIN
from chaos.garbage import raw
from chaos.history import ENDED, Pair, Run
from chaos.stream import Planned
from chaos.verdict import judge


def a_run(
    began=1.0, closed=2.0, how=ENDED, *, event="ok-1", worker="w1", pid=1, attempt=1, hop=0,
    replay=0, handler=MAIN,
):  # fmt: skip
    """One run; closed=None: it was cut short."""
    return Run(
        pair=Pair(handler, event), attempt=attempt, replay=replay, hop=hop, worker=worker,
        pid=pid, began=began, closed=closed, how="" if closed is None else how,
    )  # fmt: skip


def cut(began=1.0, **more):
    return a_run(began, None, **more)


def disturbed(what=What.KILLED, start=1.5, end=None, *, worker="w1", pid=0):
    end = start if end is None else end
    return Disturbance(fault=1, what=what, start=start, end=end, worker=worker, pid=pid)


def around(*disturbances, outages=()):
    return Circumstances(disturbances=disturbances, outages=outages)


def planned(fate="ok", number=1, **more):
    return Planned(number=number, id=f"{fate}-{number}", fate=FATES[fate], gap=0.0, **more)


def an_entry(event="permanent-1", reason="refused", *, status="held", id="e1", handler=MAIN):
    return Entry(id=id, pair=Pair(handler, event), reason=reason, status=status)


def entry_of(garbage, *, id="g1", reason="undeliverable", body=None):
    sent = raw(garbage.kind, garbage.id)
    return Entry(
        id=id, pair=Pair("", ""), reason=reason, status="archived",
        body=sent.body if body is None else body, headers=sent.headers,
    )  # fmt: skip


@pytest.fixture
def verdict():
    """Judge events, runs and entries; returns (kind, event) of each breach, and the ends."""

    def give(*events, runs=(), entries=(), around=None, **more):
        evidence = Evidence(
            published=events, runs=runs, entries=entries, around=around or Circumstances(),
            sent_at={event.id: 0.0 for event in events}, **more,
        )  # fmt: skip
        found = judge(evidence)
        return [(breach.kind, breach.event) for breach in found.breaches], dict(found.ends)

    return give
