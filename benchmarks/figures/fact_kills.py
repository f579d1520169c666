"""Facts that a killed worker takes with it: of each event that was handled one must be there."""

from __future__ import annotations

import psycopg
from harness import servers
from harness.figure import Figure, Measured
from harness.onslaught import Toll, onslaught
from harness.private_redis import private_redis
from harness.site import Side

from figures.kill_loss import KILLS, MESSAGES_A_KILL, PREFETCH
from figures.sides import load, pool_of

SEED = 20_268
_TOLD = "SELECT event_id, count(*) FROM facts WHERE subtype = 'handled' GROUP BY event_id"


def measure() -> Measured:
    """Kill workers whose facts go to PostgreSQL, and count what it has of each event."""
    tolls: list[Toll] = []
    missing = twice = 0
    for prefetch in PREFETCH:
        with (
            private_redis() as redis, servers.database() as facts, servers.virtual_host() as letters
        ):  # fmt: skip
            kills = KILLS // len(PREFETCH)
            work = load(redis, events=kills * MESSAGES_A_KILL, prefetch=prefetch)
            toll = onslaught(_side(redis, facts, letters), work, kills=kills, seed=SEED + prefetch)
            told = _told(facts)
        tolls.append(toll)
        missing += toll.messages - toll.lost - len(told)
        twice += sum(number > 1 for number in told)
    return Measured(
        values=[missing + twice],
        detail={
            "missing": missing,
            "told_twice": twice,
            "events": sum(one.messages for one in tolls),
            "events_lost": sum(one.lost for one in tolls),
            "ran_again": sum(one.ran_again for one in tolls),
            "kills": KILLS // len(PREFETCH) * len(PREFETCH),
            "seed": SEED,
            "broker_and_claims": f"Redis {servers.redis_version()}, a fresh server for each half",
            "facts": "PostgreSQL",
            "pool": pool_of("prefork"),
            "prefetch_multiplier": " and ".join(map(str, PREFETCH)) + ", half of the kills each",
        },
    )


def _side(redis: str, facts: str, letters: str) -> Side:
    return Side(
        app="workers.journal_angzarr",
        environment={
            "ANGZARR_STORE": redis,
            "ANGZARR_FACTS__URL": facts,
            "ANGZARR_DLQ__BACKEND": "amqp",
            "ANGZARR_DLQ__AMQP_URL": letters,
        },
    )


def _told(url: str) -> list[int]:
    """How many facts say of each event that it was handled."""
    with psycopg.connect(url.replace("postgresql+psycopg", "postgresql")) as connection:
        return [number for _, number in connection.execute(_TOLD).fetchall()]


FIGURES = (
    Figure(
        key="facts_lost",
        title="facts missing or told twice after kills of workers, facts in PostgreSQL",
        unit="facts",
        aim="= 0",
        against="nothing: none may be",
        how=(
            "The queue is filled; one worker after the other is started and its whole process group"
            " killed with SIGKILL in the midst of its work, after a number of starts that is drawn"
            " by a seed. The last worker is spared, and stops in order. Then PostgreSQL must have"
            " exactly one fact of each event that says it was handled."
        ),
        measure=measure,
    ),
)
