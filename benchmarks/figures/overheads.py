"""What the fact log, and telemetry, take of our own throughput: with against without."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

import psycopg
from harness import servers
from harness.figure import Figure, Measured, NotMeasured
from harness.guarantees import expect_all
from harness.pairs import Pair, in_turn, ratios
from peers.catalogue import CATALOGUE, OURS
from peers.peer import RABBITMQ, REDIS, Peer
from peers.runs import PeerDrain, Work, drain

from figures.sides import EVENTS, PAIRS


def _without_facts(log: str, environment: Mapping[str, str], events: int) -> None:
    store = servers.Store(environment["ANGZARR_STORE"], environment["ANGZARR_PREFIX"])
    expect_all(store, log, events, facts=0)


@contextmanager
def _fact_database(broker: str, folder: Path) -> Iterator[Mapping[str, str]]:
    with servers.database() as url, OURS.place(broker, folder) as place:
        yield {**place, "ANGZARR_FACTS__URL": url}


def _with_rows(log: str, environment: Mapping[str, str], events: int) -> None:
    _without_facts(log, environment, events)
    url = environment["ANGZARR_FACTS__URL"].replace("postgresql+psycopg", "postgresql")
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT count(*) FROM facts WHERE subtype = 'handled'")
        rows = found.fetchall()[0][0]
    if rows != events:
        msg = f"{rows} of {events} events have their fact in the database"
        raise NotMeasured(msg)


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
FACTS_IN_SQL: Final = replace(
    OURS, name="angzarr with facts in PostgreSQL", place=_fact_database, check=_with_rows
)
TELEMETRY: Final = replace(
    PREFORK,
    name="angzarr with telemetry",
    environment={**PREFORK.environment, "BENCH_TELEMETRY": "1"},
    check=_with_telemetry,
)


def measure(broker: str, on: Peer, off: Peer, beside: Sequence[Peer] = ()) -> Measured:
    """Drain with and without in turn, each run on a fresh broker; *beside* goes into the detail."""

    def run(of: Peer) -> PeerDrain:
        drained = drain(of, broker, Work(), EVENTS)
        if drained.handled < EVENTS:
            msg = f"{of.name} handled {drained.handled} of {EVENTS} events in time"
            raise NotMeasured(msg)
        return drained

    all_of = (on, off, *beside)
    rounds = in_turn([partial(run, one) for one in all_of], rounds=PAIRS, discarded=1)
    by_peer = list(zip(*rounds, strict=True))
    version = servers.redis_version() if broker == REDIS else servers.rabbitmq_version()
    detail = {
        **{
            one.name.replace(" ", "_"): _told(runs, by_peer[1])
            for one, runs in zip(all_of, by_peer, strict=True)
        },
        "events_a_run": EVENTS,
        "broker": f"{'Redis' if broker == REDIS else 'RabbitMQ'} {version}",
        "workers": on.settings,
    }
    return Measured(values=_ratios(by_peer[0], by_peer[1]), detail=detail)


def _told(runs: Sequence[PeerDrain], without: Sequence[PeerDrain]) -> Mapping[str, float]:
    return {
        "events_per_second": round(median(one.rate for one in runs)),
        "cpu_ms_an_event": round(median(one.cpu_ms for one in runs), 3),
        "ratio": round(median(_ratios(runs, without)), 3),
    }


def _ratios(runs: Sequence[PeerDrain], without: Sequence[PeerDrain]) -> list[float]:
    return ratios([Pair(one.rate, other.rate) for one, other in zip(runs, without, strict=True)])


_HOW = (
    "The queue is filled first, then the same workers drain it, with and without in turn; the"
    " handler does nothing. The rate is that of the handlers' starts over the middle 98 %, the CPU"
    " time that of all processes from a tenth of the events to the last. A run counts only if every"
    " event has its completed record, and "
)

FIGURES = (
    Figure(
        key="facts_overhead",
        title="throughput with the fact log, in two processes on Redis",
        unit="ratio",
        aim="≥ 0.95",
        against="the same without: `ANGZARR_FACTS__LOG=false`",
        how=_HOW + "every event, or with `facts.log` off none, has its fact in the"
        " log. Facts in PostgreSQL stand beside it, where every event has its row.",
        measure=partial(measure, REDIS, OURS, NO_FACTS, [FACTS_IN_SQL]),
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
