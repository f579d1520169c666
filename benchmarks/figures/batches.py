"""Events of a batch handler, against a task for each event that makes the same call."""

from __future__ import annotations

from functools import partial

from harness import servers
from harness.drain import drain
from harness.figure import Figure, Measured
from harness.guarantees import expect_all
from harness.pairs import Pair, alternate, medians, ratios
from harness.private_redis import private_redis
from harness.site import PROCESSES, Side

from figures.sides import PAIRS, load, pool_of

#: Of one run of ours, and of one of bare Celery, which makes a call for each.
EVENTS, TASKS = 20_000, 2_000
#: Seconds of the call that a handler makes, and none.
CALL, NO_CALL = "0.01", "0"


def measure() -> Measured:
    """Drain in turn with a call of 10 ms in the handlers; then with none, for comparison."""
    with servers.virtual_host() as letters:
        pairs, empty = (
            alternate(partial(_ours, letters, call), partial(_theirs, call), pairs=PAIRS)
            for call in (CALL, NO_CALL)
        )
    return Measured(
        values=ratios(pairs),
        detail={
            **_rates(pairs, ""),
            **_rates(empty, "_without_a_call"),
            "events_a_run": EVENTS,
            "tasks_a_run": TASKS,
            "batch": "size 100, wait 0.05 s",
            "broker": f"Redis {servers.redis_version()}, a fresh server for each run",
            "ours": pool_of(PROCESSES),
            "theirs": pool_of("prefork"),
        },
    )


def _rates(pairs: list[Pair], which: str) -> dict[str, int]:
    middle = medians(pairs)
    return {
        f"events_per_second_batches{which}": round(middle.ours),
        f"events_per_second_tasks{which}": round(middle.theirs),
    }


def _ours(letters: str, call: str) -> float:
    with private_redis() as url:
        store = servers.Store(url, "angzarr-bench")
        place = {"ANGZARR_STORE": store.url, "ANGZARR_PREFIX": store.prefix, "BENCH_CALL": call}
        dead_letters = {"ANGZARR_DLQ__BACKEND": "amqp", "ANGZARR_DLQ__AMQP_URL": letters}
        side = Side(app="workers.batch_angzarr", environment={**place, **dead_letters})
        drained = drain(side, load(url, PROCESSES, events=EVENTS))
        expect_all(store, drained.log, EVENTS)
        return drained.rate


def _theirs(call: str) -> float:
    with private_redis() as url:
        side = Side(app="workers.call_celery", environment={"BENCH_CALL": call})
        return drain(side, load(url, events=TASKS)).rate


FIGURES = (
    Figure(
        key="batch_vs_celery",
        title="events in batches of 100, whose handler makes one call of 10 ms",
        unit="ratio",
        aim="≥ 20",
        against="a bare Celery task with late ack for each event, which makes the same call",
        how=(
            "The queue is filled first; then one worker drains it: two processes of `angzarr"
            " worker` with a batch handler, two prefork children of Celery with a task. Both sleep"
            " 10 ms in place of a call to a service or a database, once in each run of a handler."
            " The rates without a call show what batches save of the way itself. A run counts only"
            " if every event ran, has a completed record, and its fact is in the log."
        ),
        measure=measure,
    ),
)
