"""How fast dead letters are put and taken, against the bare client of each backend."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from operator import attrgetter

from bare import kafka, pubsub, rabbitmq, sqs
from bare.side import Backend
from harness.figure import Figure, Measured
from harness.letter_rates import put_by_ours, put_by_theirs, taken_by_ours, taken_by_theirs
from harness.pairs import alternate, medians, ratios

PAIRS = int(os.environ.get("BENCH_RUNS", "7"))
#: Letters in flight; the aim is for the many.
ONE, MANY = 1, 100

_Rate = Callable[[Backend, int], float]
_Counts = Callable[[Backend], Mapping[int, int]]
_BACKENDS: Mapping[str, tuple[str, Callable[[], AbstractContextManager[Backend]]]] = {
    "kafka": ("Kafka", kafka.backend),
    "amqp": ("RabbitMQ", rabbitmq.backend),
    "sqs": ("SQS", sqs.backend),
    "pubsub": ("Pub/Sub", pubsub.backend),
}


def measure(
    opened: Callable[[], AbstractContextManager[Backend]],
    ours: _Rate,
    theirs: _Rate,
    letters: _Counts,
) -> Measured:
    """Measure with many in flight, and beside it with one."""
    with opened() as backend:
        pairs = {
            at_once: alternate(
                partial(ours, backend, at_once),
                partial(theirs, backend, at_once),
                pairs=PAIRS,
                discarded=1,
            )
            for at_once in (MANY, ONE)
        }
        many, one = medians(pairs[MANY]), medians(pairs[ONE])
        return Measured(
            values=ratios(pairs[MANY]),
            detail={
                "letters_per_second_ours": round(many.ours),
                "letters_per_second_bare": round(many.theirs),
                "in_flight": MANY,
                "ratio_one_in_flight": round(one.ours / one.theirs, 3),
                "letters_per_second_ours_one_in_flight": round(one.ours),
                "letters_per_second_bare_one_in_flight": round(one.theirs),
                "letters_a_run": f"{letters(backend)[MANY]:,}, with one in flight"
                f" {letters(backend)[ONE]:,}",
                "backend": backend.told,
            },
        )


def _put(key: str) -> Figure:
    name, opened = _BACKENDS[key]
    return Figure(
        key=f"dlq_put_{key}",
        title=f"dead letters put and confirmed, {name}",
        unit="ratio",
        aim="≥ 0.8",
        against="the bare client that writes the same JSON from a dict, with the same acks",
        how=(
            "One process puts letters as a worker writes them (a stack of 25 lines, 3 KB) and waits"
            " until all of a hundred are confirmed, then puts the next hundred. The bare client"
            " does the same with `json.dumps` of the same content, on Kafka under the same key."
            " Making the letter's bytes counts."
        ),
        measure=partial(measure, opened, put_by_ours, put_by_theirs, attrgetter("to_put")),
    )


def _receive(key: str) -> Figure:
    name, opened = _BACKENDS[key]
    return Figure(
        key=f"dlq_receive_{key}",
        title=f"dead letters received and let go, {name}",
        unit="ratio",
        aim="≥ 0.8",
        against="the bare client that reads the same JSON into a dict and acknowledges alike",
        how=(
            "A queue is filled; one process takes up to a hundred letters, reads them, lets them"
            " go (acknowledged, committed or deleted, and waited for where the backend answers),"
            " then takes the next. The first letter, for which both connect, is not timed."
        ),
        measure=partial(measure, opened, taken_by_ours, taken_by_theirs, attrgetter("to_take")),
    )


FIGURES = (*map(_put, _BACKENDS), *map(_receive, _BACKENDS))
