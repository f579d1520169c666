"""How fast plain Celery publishes on our Redis transport, against kombu's."""

from __future__ import annotations

from functools import partial

from harness import servers
from harness.figure import Figure, Measured, NotMeasured
from harness.pairs import alternate, medians, ratios
from harness.private_redis import private_redis
from harness.site import Side, site
from workers.stamps import Stamps

from figures.sides import EVENTS, OURS, PAIRS, STOCK, load

#: Opens the connection and declares the queue; not timed.
WARM_UP = 100


def measure(how: str) -> Measured:
    """Publish in turn, each run in a fresh process to a fresh Redis."""
    pairs = alternate(partial(_rate, how, OURS), partial(_rate, how, STOCK), pairs=PAIRS)
    middle = medians(pairs)
    return Measured(
        values=ratios(pairs),
        detail={
            "messages_per_second_ours": round(middle.ours),
            "messages_per_second_kombu": round(middle.theirs),
            "messages_a_run": EVENTS,
            "broker": f"Redis {servers.redis_version()}, a fresh server for each run",
            "processes": 1,
        },
    )


def _rate(how: str, side: Side) -> float:
    with private_redis() as url, site(side, load(url)) as at:
        Stamps.create(at.folder / "stamps", 1)
        rate = float(at.run("workers.publish_rate", how, str(WARM_UP), str(EVENTS)))
        if (queued := at.queued()) != EVENTS + WARM_UP:
            msg = f"{queued} of {EVENTS + WARM_UP} messages are in the queue"
            raise NotMeasured(msg)
    return rate


FIGURES = (
    Figure(
        key="publish_vs_kombu",
        title="publishing one by one on our Redis transport",
        unit="ratio",
        aim="≥ 1.2",
        against="the same loop on kombu's Redis transport",
        how=(
            "One process calls `apply_async` of a plain Celery task in a loop, after a warm-up. A"
            " run counts only if every message is in the queue. Most of the time is Celery's own,"
            " which our transport cannot shorten."
        ),
        measure=partial(measure, "loop"),
    ),
    Figure(
        key="publish_batch_vs_kombu",
        title="publishing in batches on our Redis transport",
        unit="ratio",
        aim="≥ 0.95",
        against="the same batches on kombu's Redis transport",
        how=(
            "The same loop with one producer within `producer.batch(max_size=100)`, on both sides."
            " Our transport sends a batch as kombu's does."
        ),
        measure=partial(measure, "batch"),
    ),
)
