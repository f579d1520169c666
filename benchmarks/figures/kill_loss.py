"""Messages that a killed worker takes with it."""

from __future__ import annotations

import json
import os
from typing import Any

from harness import servers
from harness.figure import Figure, Measured
from harness.onslaught import Toll, onslaught
from harness.private_redis import private_redis
from harness.site import Side

from figures.sides import TRANSPORT, load, pool_of

#: Fewer for a quick look while working on the code; the report tells how many there were.
KILLS = int(os.environ.get("BENCH_KILLS", "50"))
MESSAGES_A_KILL = 600
SEED = 20_261
#: Half of the kills with each: how much a worker holds at once.
PREFETCH = (1, 64)

OURS = Side(app="workers.journal_celery", environment={"BENCH_TRANSPORT": TRANSPORT})
#: kombu's give-back at its quickest: anything that is unacknowledged for 5 s comes back.
RESTORE = {"visibility_timeout": 5, "unacked_restore_interval": 1, "unacked_restore_throttle": 1}
STOCK = Side(
    app="workers.journal_celery", environment={"BENCH_TRANSPORT_OPTIONS": json.dumps(RESTORE)}
)


def measure() -> Measured:
    """Kill ours and theirs by turns, as often and with the same seeds."""
    ours: dict[int, Toll] = {}
    theirs: dict[int, Toll] = {}
    for prefetch in PREFETCH:
        ours[prefetch] = _kill(OURS, prefetch)
        theirs[prefetch] = _kill(STOCK, prefetch)
    return Measured(
        values=[sum(one.lost for one in ours.values())],
        detail={
            **_told("ours", ours),
            **_told("kombu", theirs),
            "messages_each": sum(one.messages for one in ours.values()),
            "kills_each": KILLS // len(PREFETCH) * len(PREFETCH),
            "seed": SEED,
            "broker": f"Redis {servers.redis_version()}, a fresh server for each half",
            "pool": pool_of("prefork"),
            "prefetch_multiplier": " and ".join(map(str, PREFETCH)) + ", half of the kills each",
            "kombu_options": json.dumps(RESTORE),
        },
    )


def _kill(side: Side, prefetch: int) -> Toll:
    kills = KILLS // len(PREFETCH)
    with private_redis() as url:
        work = load(url, events=kills * MESSAGES_A_KILL, prefetch=prefetch)
        return onslaught(side, work, kills=kills, seed=SEED + prefetch)


def _told(name: str, tolls: dict[int, Toll]) -> dict[str, Any]:
    return {
        f"lost_{name}": sum(one.lost for one in tolls.values()),
        f"lost_by_prefetch_{name}": {f"at {key}:": one.lost for key, one in tolls.items()},
        f"ran_again_{name}": sum(one.ran_again for one in tolls.values()),
    }


FIGURES = (
    Figure(
        key="kill_loss_redis",
        title="messages lost by kills, Redis broker",
        unit="messages",
        aim="= 0",
        against="the same app on kombu's Redis transport, its give-back set to 5 s",
        how=(
            "Plain Celery, late ack. The queue is filled; one worker after the other is started"
            " and its whole process group killed with SIGKILL in the midst of its work, after a"
            " number of starts that is drawn by a seed. The last worker is spared. Every start is"
            " written to a file; a message without any start counts as lost once nothing is left"
            " in the queue or unacknowledged and nothing has started for 20 s. The value is the sum"
            " over all kills."
        ),
        measure=measure,
    ),
)
