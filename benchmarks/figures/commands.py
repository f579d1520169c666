"""What a worker asks of Redis: for each message, and while there is nothing to do."""

from __future__ import annotations

from functools import partial
from statistics import median
from typing import Any

import redis
from harness import idle, servers
from harness.drain import filled, handled
from harness.figure import Figure, Measured
from harness.pairs import alternate, medians, ratios
from harness.private_redis import private_redis
from harness.redis_counters import Counts, by_name, counts, monitored
from harness.site import Side, site
from workers.stamps import Stamps

from figures.sides import EVENTS, OURS, PAIRS, STOCK, load, pool_of, prefetch_of

#: MONITOR slows the server, so the names are counted over fewer messages.
NAMED = 1000


def measure() -> Measured:
    """Drain in turn, each run on a fresh Redis; then look at an idle worker of each side."""
    ran: dict[str, list[Counts]] = {"ours": [], "kombu": []}
    pairs = alternate(
        partial(_round_trips, OURS, ran["ours"]), partial(_round_trips, STOCK, ran["kombu"]),
        pairs=PAIRS,
    )  # fmt: skip
    middle = medians(pairs)
    detail: dict[str, Any] = {
        "round_trips_per_message_ours": round(middle.ours, 2),
        "round_trips_per_message_kombu": round(middle.theirs, 2),
        "messages_a_run": EVENTS,
        "broker": f"Redis {servers.redis_version()}, a fresh server for each run",
        "pool": pool_of("prefork"),
        "prefetch_multiplier": prefetch_of(),
    }
    for name, side in (("ours", OURS), ("kombu", STOCK)):
        commands = median(one.commands for one in ran[name]) / EVENTS
        detail[f"commands_per_message_{name}"] = round(commands, 2)
        detail |= {f"{what}_{name}": value for what, value in _by_sender(side).items()}
        detail |= {f"idle_{what}_{name}": value for what, value in _idle(side).items()}
    return Measured(values=ratios(pairs), detail=detail)


def _round_trips(side: Side, ran: list[Counts]) -> float:
    """Return a message's round trips, from the worker's start until it has stopped."""
    with (
        private_redis() as url,
        redis.Redis.from_url(url) as client,
        site(side, load(url)) as at,
    ):
        stamps = filled(at)
        before = counts(client)
        with at.worker() as worker:
            handled(stamps, at, worker)
        ran.append(counts(client).since(before))
    return ran[-1].round_trips / EVENTS


def _by_sender(side: Side) -> dict[str, Any]:
    """Return commands per message that the worker's clients sent, and that scripts called."""
    with private_redis() as url, site(side, load(url, events=NAMED)) as at:
        stamps = filled(at)
        with monitored(url) as found, at.worker() as worker:
            handled(stamps, at, worker)
    return {
        f"{who}_commands_per_message": by_name(found, who, NAMED) for who in ("client", "script")
    }


def _idle(side: Side) -> dict[str, Any]:
    with private_redis() as url, site(side, load(url)) as at:
        Stamps.create(at.folder / "stamps", 1)
        with at.worker() as worker:
            return idle.watched(worker, url)


FIGURES = (
    Figure(
        key="redis_commands_per_message",
        title="round trips to Redis for each message",
        unit="ratio",
        aim="≤ 0.5",
        against="the same app on kombu's Redis transport",
        how=(
            "Plain Celery, late ack, no-op tasks. The server counts the requests that it reads"
            " from sockets (`total_reads_processed`: a pipeline is one, a script is one) and the"
            " commands that it runs, those inside of scripts and transactions included, from the"
            " worker's start to its stop. By name and sender: from MONITOR, over"
            f" {NAMED} messages. Idle: one worker with an empty queue, {idle.WINDOW:g} s for the"
            " counts and as long for the names; processor time of all its processes."
        ),
        measure=measure,
    ),
)
