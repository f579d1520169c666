"""What a worker answers to probes, in each state that its loop may leave it in."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from celery.concurrency.solo import TaskPool
from celery.worker import state

from angzarr.adapters.celery.worker.consumer_state import ConsumerState, ReceiptFailures
from angzarr.adapters.celery.worker.settle_thread import Trouble
from angzarr.adapters.celery.worker.worker_health import SETTLED_WITHIN, WorkerHealth
from angzarr.runtime.health_report import Heartbeat

STALLED = 60.0
#: Longer than that: children that load a model, say.
UP_WITHIN = 90.0


class Worker:
    """A worker's loop, turned by hand, and its health."""

    def __init__(self, app) -> None:
        self.now = 1000.0
        self.stops, self.sure, self.reached = False, True, True
        self.unlogged = self.unfit = ""
        self.facts = None
        self.settles_not = None
        self.movement = ConsumerState(self.clock, Heartbeat(self.clock), changed_at=self.now)
        self.movement.receipts = ReceiptFailures(self.clock)
        self.health = WorkerHealth(
            self.movement,
            stalled_after=STALLED,
            up_within=UP_WITHIN,
            stopping=lambda: self.stops,
            lease_is_sure=lambda: self.sure,
            reaches_store=lambda: self.reached,
            log_says=lambda: self.unlogged,
            store_says=lambda: self.unfit,
            settle_trouble=lambda: self.settles_not,
            facts_say=lambda: self.facts,
            monotonic=self.clock,
        )
        self.channel = SimpleNamespace(_consumers={"t"})
        queue = app.conf.task_default_queue
        self.tasks = SimpleNamespace(channel=self.channel, _active_tags={queue: "t"})
        self.consumer = SimpleNamespace(
            app=app, task_consumer=self.tasks, pool=SimpleNamespace(_pool=None)
        )

    def clock(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds

    def turn(self, times: int = 1) -> None:
        """Turn the loop once a second."""
        for _ in range(times):
            self.pass_by(1)
            self.movement.look(self.consumer)

    def broken(self, probe: str) -> list[str]:
        report = getattr(self.health, probe)()
        return [name for name, holds, _ in report.conditions if not holds]


@pytest.fixture
def worker(app):
    app.finalize(auto=True)
    made = Worker(app)
    made.movement.connect(pool=object())
    made.turn()
    return made


def test_a_worker_that_turns_is_live_and_ready(worker):
    worker.turn(200)
    assert worker.broken("live") == worker.broken("ready") == []


def test_a_loop_that_hangs_is_dead(worker):
    worker.pass_by(STALLED)
    assert worker.broken("live") == []
    worker.pass_by(1)
    assert worker.broken("live") == ["loop"]


def test_a_loop_that_hangs_makes_a_worker_unready_before_it_is_dead(worker):
    worker.pass_by(SETTLED_WITHIN)
    assert worker.broken("ready") == []
    worker.pass_by(1)
    assert (worker.broken("live"), worker.broken("ready")) == ([], ["loop"])


def test_a_worker_that_connects_in_turns_is_live_however_long(worker):
    worker.movement.disconnect()
    for _ in range(100):
        worker.pass_by(30)  # the longest pause
        worker.movement.beat()
    assert worker.broken("live") == []
    assert worker.broken("ready") == ["broker", "consuming"]


def test_a_try_to_connect_that_never_ends_is_dead(worker):
    worker.movement.disconnect()
    worker.pass_by(STALLED + 1)
    assert worker.broken("live") == ["loop"]


def test_a_worker_that_begins_is_not_ready_before_its_loop_turned(worker):
    worker.movement.disconnect()
    worker.movement.connect(pool=object())
    assert worker.broken("ready") == ["consuming"]
    worker.turn()
    assert worker.broken("ready") == []


@pytest.mark.parametrize("harm", ["no consumer", "cancelled", "closed", "silent"])
def test_a_queue_that_is_not_consumed_though_it_should_be_is_dead(worker, harm):
    if harm == "no consumer":
        worker.tasks._active_tags.clear()
    elif harm == "cancelled":
        worker.channel._consumers.clear()
    elif harm == "closed":
        worker.channel.is_open = False
    else:
        worker.channel.unserved = lambda _queue: "Redis has answered no fetch for 20 s"
    worker.turn(int(SETTLED_WITHIN))
    assert worker.broken("ready") == []
    worker.turn(2)
    assert (worker.broken("live"), worker.broken("ready")) == ([], ["consuming"])
    worker.turn(int(STALLED))
    assert worker.broken("live") == ["consuming"]


def test_rabbitmqs_channels_know_a_consumer_by_its_callback(worker):
    del worker.channel._consumers
    worker.channel.callbacks = {"t": print}
    worker.turn(100)
    assert worker.broken("live") == []
    worker.channel.callbacks = {}
    worker.turn(100)
    assert worker.broken("live") == ["consuming"]


def test_a_queue_that_goes_without_for_moments_is_no_fault(worker):
    for _ in range(100):
        worker.channel.unserved = lambda _queue: "silent"
        worker.turn(5)
        worker.channel.unserved = lambda _queue: ""
        worker.turn()
    assert worker.broken("live") == worker.broken("ready") == []


def test_a_queue_that_is_held_is_not_missed(worker, app):
    app.amqp.queues.deselect(app.conf.task_default_queue)
    worker.tasks._active_tags.clear()
    worker.turn(200)
    assert worker.broken("live") == worker.broken("ready") == []


def test_a_transport_whose_broker_is_away_makes_it_unready_only(worker):
    worker.channel.away = lambda: "Redis is away, and tried again"
    worker.turn(200)
    assert (worker.broken("live"), worker.broken("ready")) == ([], ["broker"])


def test_the_lease_and_the_store_are_conditions_of_readiness_alone(worker):
    worker.sure = worker.reached = False
    worker.turn()
    assert (worker.broken("live"), worker.broken("ready")) == ([], ["lease", "store"])


def test_a_worker_that_stops_is_not_ready_and_stays_live(worker):
    worker.stops = True
    worker.pass_by(10 * STALLED)
    assert worker.broken("live") == []
    assert "running" in worker.broken("ready")


def _solo(worker, monkeypatch):
    monkeypatch.setattr(state, "active_requests", set())
    worker.movement.connect(pool=object.__new__(TaskPool))
    worker.turn()


def test_a_task_that_runs_on_the_loop_of_a_solo_worker_is_no_stall(worker, monkeypatch):
    _solo(worker, monkeypatch)
    state.active_requests.add("task")
    worker.pass_by(3600)
    assert worker.broken("live") == []
    state.active_requests.clear()
    worker.pass_by(STALLED)
    assert worker.broken("live") == [], "its loop has had no time to turn"
    worker.pass_by(1)
    assert worker.broken("live") == ["loop"]


def test_a_task_elsewhere_is_no_excuse_for_a_loop_that_hangs(worker, monkeypatch):
    monkeypatch.setattr(state, "active_requests", {"task"})
    worker.pass_by(STALLED + 1)
    assert worker.broken("live") == ["loop"]


def test_no_child_for_long_is_dead_and_one_too_few_is_not_ready(worker, monkeypatch):
    billiard = SimpleNamespace(_all_inqueues={7, 8}, _processes=2)
    monkeypatch.setattr("angzarr.adapters.celery.worker.consumer_state.AsynPool", SimpleNamespace)
    worker.consumer.pool._pool = billiard
    worker.turn(100)
    assert worker.broken("live") == worker.broken("ready") == []
    billiard._all_inqueues = {7}
    worker.turn(int(SETTLED_WITHIN) + 2)
    assert (worker.broken("live"), worker.broken("ready")) == ([], ["processes"])
    billiard._all_inqueues = set()
    worker.turn(int(UP_WITHIN))
    assert worker.broken("live") == [], "they may still be on their way"
    worker.turn(2)
    assert worker.broken("live") == worker.broken("ready") == ["processes"]
    billiard._all_inqueues = {7, 8}
    worker.turn()
    assert worker.broken("live") == worker.broken("ready") == []


def says(worker, probe, name):
    return next(
        says for found, _, says in getattr(worker.health, probe)().conditions if found == name
    )


def test_a_worker_that_can_take_no_message_is_not_ready_and_dead_if_that_lasts(worker):
    lacks = RuntimeError("can't start new thread")
    worker.movement.receipts.fail(lacks, "a message")
    assert (worker.broken("live"), worker.broken("ready")) == ([], [])
    for _ in range(7):
        worker.turn(10)
        worker.movement.receipts.fail(lacks, "a message")
    assert (worker.broken("live"), worker.broken("ready")) == (["taking"], ["taking"])
    assert "can't start new thread" in says(worker, "ready", "taking")
    worker.movement.receipts.succeed()
    assert worker.broken("live") == worker.broken("ready") == []


def test_a_pool_with_fewer_threads_than_it_wants_is_ready_and_says_so(worker):
    worker.movement.threads = SimpleNamespace(is_short=True, has=24, most=40)
    assert worker.broken("ready") == []
    assert "24 of 40 threads" in says(worker, "ready", "taking")


def test_what_cannot_be_logged_is_told_and_makes_no_worker_unready(worker):
    worker.unlogged = "3 lines could not be written: No space left on device"
    assert worker.broken("ready") == []
    assert says(worker, "ready", "log") == worker.unlogged


def test_facts_that_wait_are_told_and_make_no_worker_unready(worker):
    assert "facts" not in {one.name for one in worker.health.ready().conditions}
    worker.facts = ""
    assert says(worker, "ready", "facts") == "they are moved"
    worker.facts = "facts wait in the outbox for 40 s, 7 of them: the database is away"
    assert says(worker, "ready", "facts") == worker.facts
    assert worker.broken("ready") == []


def test_a_store_that_deletes_keys_makes_a_worker_unready_but_not_dead(worker):
    worker.unfit = "messages would be lost: Redis deletes keys"
    assert (worker.broken("live"), worker.broken("ready")) == ([], ["store"])


def test_a_worker_whose_settle_thread_is_gone_is_not_ready_and_dead_if_that_lasts(worker):
    worker.settles_not = Trouble("the thread does not run", ended=True)
    assert (worker.broken("live"), worker.broken("ready")) == ([], ["settling"])
    assert says(worker, "ready", "settling") == "the thread does not run"
    worker.turn(int(STALLED))
    assert worker.broken("live") == []
    worker.turn(2)
    assert worker.broken("live") == worker.broken("ready") == ["settling"]
    worker.settles_not = None
    assert worker.broken("live") == worker.broken("ready") == []
    worker.settles_not = Trouble("the thread does not run", ended=True)
    assert worker.broken("live") == [], "it is gone anew"


def test_a_settle_thread_that_lacks_memory_makes_a_worker_unready_but_not_dead(worker):
    worker.settles_not = Trouble("it lacks memory", ended=False)
    worker.turn(int(STALLED) + 2)
    assert (worker.broken("live"), worker.broken("ready")) == ([], ["settling"])


class Loop:
    still = 0.0

    def still_for(self) -> float:
        return self.still


def test_a_blocked_loop_of_coroutines_makes_a_worker_unready_and_dead_if_that_lasts(worker):
    assert "coroutines" not in [one.name for one in worker.health.live().conditions]
    loop = worker.movement.coroutines = Loop()
    assert says(worker, "ready", "coroutines") == "their loop turns"
    assert worker.broken("live") == worker.broken("ready") == []
    loop.still = SETTLED_WITHIN + 1
    assert (worker.broken("live"), worker.broken("ready")) == ([], ["coroutines"])
    assert says(worker, "ready", "coroutines").startswith("their loop is blocked for 11")
    loop.still = STALLED + 1
    assert worker.broken("live") == worker.broken("ready") == ["coroutines"]
