"""What reaches a dependency that is sick, from a fleet that has work for it all the time."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from statistics import mean, median
from typing import Any

from harness import servers
from harness.figure import Figure, Measured
from harness.private_redis import private_redis
from harness.sick_bay import Plan, Stay, stay
from harness.site import Side

from figures.sides import load, prefetch_of

#: Each takes about ten minutes for the three sides, so there are fewer than of other figures.
RUNS = int(os.environ.get("BENCH_OUTAGE_RUNS", "3"))
#: Shorter for a quick look while working on the code: then spans of breakers shrink with it.
SICK = int(os.environ.get("BENCH_OUTAGE_S", "60"))
PLAN = Plan(rate=200, before=10, sick=SICK, after=SICK)
#: Workers with two children each: a fleet of eight processes.
WORKERS = 4
#: Seconds that the plot shows beyond the end of publishing.
TAIL = 80

ANGZARR, CELERY, PYBREAKER = "angzarr", "Celery autoretry", "Celery + pybreaker"


def measure() -> Measured:
    """Let each fleet go through the same outage, in turn."""
    runs = [{name: _stay(name) for name in (ANGZARR, CELERY, PYBREAKER)} for _ in range(RUNS)]
    calls = {
        name: [run[name].course.calls_while_sick() for run in runs]
        for name in (ANGZARR, CELERY, PYBREAKER)
    }
    ratios = [ours / theirs for ours, theirs in zip(calls[ANGZARR], calls[CELERY], strict=True)]
    return Measured(
        values=ratios,
        detail={
            **{name: _told([run[name] for run in runs]) for name in calls},
            "load": f"{PLAN.rate} events a second, {PLAN.events:,} in all, from {PLAN.before} s"
            f" before the outage to {PLAN.after} s after it",
            "outage": f"{SICK} s of 503 after 50 ms each; otherwise 200 after 5 ms",
            "broker": f"Redis {servers.redis_version()}, a fresh server for each run, also the"
            " store of breakers and claims",
            "fleet": f"{WORKERS} workers of 2 prefork children, {WORKERS * 2} processes",
            "prefetch_multiplier": prefetch_of(),
        },
        plot=_plot(runs[-1]),
    )


def _stay(name: str) -> Stay:
    with private_redis() as url, _side(name, url) as side:
        return stay(side, load(url, events=PLAN.events), PLAN, WORKERS)


@contextmanager
def _side(name: str, url: str) -> Iterator[Side]:
    if name == CELERY:
        yield Side(app="workers.dependent_celery", environment={})
    elif name == PYBREAKER:
        environment = {"BENCH_PYBREAKER": str(SICK)}
        yield Side(app="workers.dependent_celery", environment=environment)
    else:
        with servers.virtual_host() as letters:
            environment = {
                "ANGZARR_STORE": url,
                "ANGZARR_DLQ__BACKEND": "amqp",
                "ANGZARR_DLQ__AMQP_URL": letters,
            }
            if SICK != 60:
                spans = {"open_for": SICK, "ramp_up": SICK / 2, "window": SICK}
                environment["ANGZARR_FLOW__BREAKERS"] = json.dumps({"dep": spans})
            yield Side(app="workers.dependent_angzarr", environment=environment)


def _told(stays: list[Stay]) -> str:
    """Return medians over the runs of one side, but the worst of what must not be."""

    def middle(values: Iterator[float | None]) -> str:
        known = [value for value in values if value is not None]
        return f"{median(known):.1f} s" if len(known) == len(stays) else "not seen"

    runs = [one.runs for one in stays]
    return (
        f"{median(one.course.calls_while_sick() for one in stays):,.0f} calls during the outage,"
        f" attempts of an event {mean(mean(each.values()) for each in runs):.2f} in the mean and"
        f" {max(max(each.values()) for each in runs)} at most,"
        f" full rate {middle(one.course.full_after(PLAN.rate) for one in stays)} after the outage,"
        f" backlog gone after {middle(one.course.drained_after(PLAN.rate) for one in stays)},"
        f" slowest event {middle(one.course.slowest() for one in stays)},"
        f" published within {middle(one.course.published_within() for one in stays)},"
        f" given up {median(len(one.course.given_up) for one in stays):,.0f},"
        f" dead letters {max(one.letters for one in stays):,},"
        f" unaccounted for {max(one.lost for one in stays)},"
        f" handled twice {max(one.repeated for one in stays)}"
    )


def _plot(run: Mapping[str, Stay]) -> dict[str, Any]:
    last = PLAN.sick + PLAN.after + TAIL
    return {
        "file": "outage_calls.svg",
        "title": f"Calls that reach a dependency that is away for {SICK} s",
        "x": "seconds since the outage began",
        "y": "calls per second",
        "first": -PLAN.before,
        "shaded": [0, PLAN.sick],
        "shade": "outage",
        "level": PLAN.rate,
        "levelled": [-PLAN.before, PLAN.sick + PLAN.after],
        "level_name": "events published per second",
        "lines": {
            name: one.course.calls_per_second(PLAN.before, last) for name, one in run.items()
        },
    }


FIGURES = (
    Figure(
        key="outage_calls_ratio",
        title="calls that reach a dependency while it is away",
        unit="ratio",
        aim="≤ 0.02",
        against="Celery's autoretry (`retry_backoff=1`, five retries, its jitter, late ack)",
        how=(
            "A fleet of eight prefork processes handles a steady stream of events by one HTTP call"
            " each, to a server that is sick for a minute: it answers 503 after 50 ms, so that"
            " every call that is made can be counted, and eight processes make at most 160 a"
            " second. Ours is `@app.handler(…, breaker=…)` with every default; theirs is the same"
            " handler on bare Celery, and on Celery with pybreaker (Redis storage, five failures,"
            " 60 s), where a refusal is retried as a failure is. It keeps the time of its opening"
            " in whole seconds, so it may try again within the outage, and is open for another 60 s"
            " then. The rate is full again in the first second with 95 % of it handled; the backlog"
            " is gone when for the last time more than a second's worth of events waited. Given up:"
            " a task that failed for good. At the end each event must be handled, given up, or a"
            " letter."
        ),
        measure=measure,
    ),
)
