"""What the fact log, and telemetry, take of our own throughput: with against without."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from harness import servers
from harness.figure import Figure, Measured, NotMeasured
from harness.guarantees import expect_all
from harness.pairs import alternate, medians, ratios
from peers.catalogue import CATALOGUE, OURS
from peers.peer import RABBITMQ, REDIS, Peer
from peers.runs import Work, drain

from figures.sides import EVENTS, PAIRS


def _without_facts(log: str, environment: Mapping[str, str], events: int) -> None:
    store = servers.Store(environment["ANGZARR_STORE"], environment["ANGZARR_PREFIX"])
    expect_all(store, log, events, facts=0)


def _with_telemetry(log: str, environment: Mapping[str, str], events: int) -> None:
    PREFORK.check(log, environment, events)
    written = Path(environment["BENCH_FOLDER"]).glob("spans-*")
    spans = sum(text.count("\n") for text in map(Path.read_text, written))
    if spans < events:
        msg = f"{spans} spans of {events} events were exported"
        raise NotMeasured(msg)


PREFORK: Final = CATALOGUE["angzarr prefork"]
NO_FACTS: Final = replace(
    OURS,
    name="angzarr without facts",
    environment={**OURS.environment, "ANGZARR_FACTS__LOG": "false"},
    check=_without_facts,
)
TELEMETRY: Final = replace(
    PREFORK,
    name="angzarr with telemetry",
    environment={**PREFORK.environment, "BENCH_TELEMETRY": "1"},
    check=_with_telemetry,
)


def measure(broker: str, on: Peer, off: Peer) -> Measured:
    """Drain with and without in turn, each run on a fresh broker."""

    def rate(of: Peer) -> float:
        drained = drain(of, broker, Work(), EVENTS)
        if drained.handled < EVENTS:
            msg = f"{of.name} handled {drained.handled} of {EVENTS} events in time"
            raise NotMeasured(msg)
        return drained.rate

    pairs = alternate(partial(rate, on), partial(rate, off), pairs=PAIRS, discarded=1)
    middle = medians(pairs)
    version = servers.redis_version() if broker == REDIS else servers.rabbitmq_version()
    detail = {
        "events_per_second_with": round(middle.ours),
        "events_per_second_without": round(middle.theirs),
        "events_a_run": EVENTS,
        "broker": f"{'Redis' if broker == REDIS else 'RabbitMQ'} {version}",
        "workers": on.settings,
    }
    return Measured(values=ratios(pairs), detail=detail)


_HOW = (
    "The queue is filled first, then the same workers drain it, with and without in turn; the"
    " handler does nothing. The rate is that of the handlers' starts over the middle 98 %. A run"
    " counts only if every event has its completed record, and "
)

FIGURES = (
    Figure(
        key="facts_overhead",
        title="throughput with the fact log, in two processes on Redis",
        unit="ratio",
        aim="≥ 0.95",
        against="the same without: `ANGZARR_FACTS__LOG=false`",
        how=_HOW + "every event, or with `facts.log` off none, has its fact in the log.",
        measure=partial(measure, REDIS, OURS, NO_FACTS),
    ),
    Figure(
        key="telemetry_overhead",
        title="throughput with full telemetry, in prefork on RabbitMQ",
        unit="ratio",
        aim="≥ 0.90",
        against="the same without an SDK of OpenTelemetry",
        how=_HOW
        + (
            "with telemetry there is a span of every event. Full telemetry is OpenTelemetry's SDK"
            " in each child: all spans, sampled and exported in batches, and all metrics, exported"
            " every second; both are written to files as JSON."
        ),
        measure=partial(measure, RABBITMQ, TELEMETRY, PREFORK),
    ),
)
