"""Ours with all guarantees on against other task queues with theirs, at work that is nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from harness import servers
from harness.figure import Figure, Measured, NotMeasured
from harness.pairs import alternate, medians, ratios
from peers.catalogue import CATALOGUE, OURS
from peers.peer import RABBITMQ, REDIS, Peer
from peers.runs import Work, drain

from figures.sides import EVENTS, PAIRS

NOTHING = Work()


def measure(
    theirs: Peer,
    broker: str,
    *,
    ours: Peer = OURS,
    work: Work = NOTHING,
    durable: bool = False,
    beside: Sequence[Peer] = (),
) -> Measured:
    """Drain in turn, each run on a fresh broker; *beside* are other peers, for their rate alone.

    A peer that is not through in time is judged by what it did; ours has to be.
    """

    def rate(of: Peer) -> float:
        drained = drain(of, broker, work, EVENTS, durable=durable)
        if of is ours and drained.handled < EVENTS:
            msg = f"{of.name} handled {drained.handled} of {EVENTS} events in time"
            raise NotMeasured(msg)
        return drained.rate

    pairs = alternate(partial(rate, ours), partial(rate, theirs), pairs=PAIRS, discarded=1)
    middle = medians(pairs)
    detail = {
        "events_per_second_ours": round(middle.ours),
        "events_per_second_theirs": round(middle.theirs),
        "events_a_run": EVENTS,
        "broker": _told(broker, durable=durable),
        "ours": ours.settings,
        "theirs": f"{theirs.name} {theirs.version()}: {theirs.settings}",
    }
    for one in beside:
        detail[f"events_per_second_{one.name.replace(' ', '_')}"] = round(rate(one))
    return Measured(values=ratios(pairs), detail=detail)


def _told(broker: str, *, durable: bool) -> str:
    if broker == RABBITMQ:
        return f"RabbitMQ {servers.rabbitmq_version()}"
    written = ", append-only file written every second" if durable else ""
    return f"Redis {servers.redis_version()}, a fresh server for each run{written}"


_HOW = (
    "The queue is filled first, then two worker processes a side drain it. The rate is that of the"
    " handlers' starts over the middle 98 %, stamped the same way on both sides. Ours has all"
    " guarantees on (claim, owner lease, start count, breaker, typed decode, fact, confirmed"
    " copies); a run of ours counts only if every event has its completed record and its fact."
    " A peer that is not through after a minute is judged by what it did."
)


def _figure(
    key: str, title: str, aim: str, *, theirs: str, run: Callable[[Peer], Measured], how: str = ""
) -> Figure:
    return Figure(
        key=key,
        title=title,
        unit="ratio",
        aim=aim,
        against=f"{theirs}: {CATALOGUE[theirs].settings}",
        how=_HOW + how,
        measure=partial(run, CATALOGUE[theirs]),
    )


_on_redis = partial(measure, broker=REDIS)

FIGURES = (
    _figure(
        "processes_vs_celery", "no-op in two processes on Redis, all guarantees", "≥ 8",
        theirs="Celery prefork", run=_on_redis,
    ),
    _figure(
        "processes_vs_celery_rabbitmq", "the same on RabbitMQ", "≥ 2",
        theirs="Celery prefork",
        run=partial(measure, broker=RABBITMQ, beside=[CATALOGUE["Celery solo"]]),
    ),
    _figure(
        "processes_vs_dramatiq", "the same on Redis against dramatiq", "≥ 1.5",
        theirs="dramatiq", run=_on_redis,
    ),
    _figure(
        "processes_vs_taskiq", "the same on Redis against taskiq", "≥ 1.5",
        theirs="taskiq", run=_on_redis,
    ),
    _figure(
        "vs_relier", "the same on Redis against Relier with its guarantees", "≥ 4",
        theirs="Relier", run=partial(measure, broker=REDIS, durable=True),
        how=" Relier wants a Redis that writes its append-only file, so both sides have one.",
    ),
    _figure(
        "vs_handbuilt", "the same on RabbitMQ against what people build by hand", "≥ 3",
        theirs="hand-built",
        run=partial(measure, broker=RABBITMQ, beside=[CATALOGUE["angzarr prefork"]]),
        how=(
            " A run of the hand-built side counts only if Redis has a completed record of every"
            " event, and the breaker. Our prefork pool stands beside it: it has the same pipe as"
            " theirs, and no batches to gain from at this prefetch."
        ),
    ),
)  # fmt: skip
