"""The replay of a group: what a sick dependency costs, and what kills of its engine cost."""

from __future__ import annotations

import os

from harness.figure import Figure, Measured
from harness.replaying import replay_under_fire, sent_before_it_halts

#: Fewer for a quick look while working on the code; the report tells how many there were.
ENTRIES = int(os.environ.get("BENCH_ENTRIES", "10000"))
KILLED = int(os.environ.get("BENCH_KILLED_ENTRIES", "2000"))
KILLS = int(os.environ.get("BENCH_KILLS", "20"))
SEED = 20_267
#: Run from which the dependency is ill, for the detail: in the last stage.
LATE = 200


def measure_halts() -> Measured:
    """Begin the group's replay while its dependency is ill, and while it is about to fall ill."""
    ill = sent_before_it_halts(ENTRIES, ill_from=0)
    late = sent_before_it_halts(ENTRIES, ill_from=LATE)
    return Measured(
        values=[ill.sent],
        detail={
            "entries": ENTRIES,
            "said": ill.said,
            "failed_if_it_falls_ill_in_the_last_stage": late.failed,
            "it_says_then": late.said,
            "plan": "stages 1, 5, 25; 100 in flight; halts over 20 %; no rate limit",
            "broker": "Redis",
            "letters": "RabbitMQ",
            "ledger": "PostgreSQL",
        },
    )


def measure_kills() -> Measured:
    """Kill the analysis worker at progress drawn by a seed."""
    account = replay_under_fire(KILLED, kills=KILLS, seed=SEED)
    return Measured(
        values=[account.lost + account.repeated],
        detail={
            "entries": KILLED,
            "kills": account.kills,
            "lost": account.lost,
            "handled_more_than_once": account.repeated,
            "seconds": round(account.seconds),
            "seed": SEED,
            "ledger": "PostgreSQL",
        },
    )


FIGURES = (
    Figure(
        key="replay_halts_after",
        title="replays of a group of 10,000 that are sent while its dependency is still ill",
        unit="replays",
        aim="≤ 1",
        against="nothing: the canary is the only one that may be",
        how=(
            "A group of entries lies in the ledger; a Celery worker handles their event and fails"
            " for good each time. A job of the default plan, without a rate limit, replays it"
            " until it halts itself. Beside it, in the detail: the same where the dependency falls"
            " ill at run 200, in the last stage."
        ),
        measure=measure_halts,
    ),
    Figure(
        key="replay_kills_lost",
        title="events lost or handled twice after kills of the worker that replays their group",
        unit="events",
        aim="= 0",
        against="nothing: none may be",
        how=(
            "A job replays a group; the analysis worker that carries it out is killed with SIGKILL"
            " again and again, at progress drawn by a seed; the last one is spared. Then every"
            " entry must be resolved, and the handler must have run once for each."
        ),
        measure=measure_kills,
    ),
)
