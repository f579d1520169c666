"""The order in which a worker ends, and what of Celery and billiard that stands on."""

from __future__ import annotations

import signal
import threading
import time
from types import SimpleNamespace

import pytest
from celery.bootsteps import RUN
from celery.concurrency.asynpool import AsynPool
from celery.worker import WorkController, state

from angzarr.adapters.celery.shutdown import pool_shutdown as ending_pools
from angzarr.adapters.celery.shutdown import shutdown
from angzarr.adapters.celery.shutdown.pool_shutdown import PreforkShutdown
from angzarr.adapters.celery.shutdown.shutdown import Shutdown, ShutdownStep
from angzarr.adapters.celery.worker import settlement as giving_back
from angzarr.adapters.celery.worker.pools import pass_by_ending, spare_begun
from angzarr.adapters.celery.worker.settlement import give_back_requests, unbegun
from angzarr.delivery.async_runner import INTERRUPTER, Interrupt


@pytest.fixture(autouse=True)
def no_requests():
    state.reset_state()
    yield
    state.reset_state()
    INTERRUPTER.reset()


class Channel:
    """A channel whose book can give back many at once, as that of our own transports."""

    def __init__(self, journal):
        self.journal = journal
        self.qos = self

    def give_back(self, tags):
        self.journal.append(("given back", list(tags)))


class Request:
    """A request as far as a shutdown looks at it."""

    def __init__(self, tag, channel, journal=()):
        self.id = tag
        self.acknowledged = False
        self.message = SimpleNamespace(delivery_tag=tag, channel=channel)
        self.told = []

    def send_event(self, kind, **_fields):
        self.told.append(kind)


class Consumer:
    """Consumes from a broker that sends one more message until it knows of the cancel."""

    def __init__(self, journal, channel):
        self.journal, self.channel = journal, channel
        self.connection = object()
        self.task_consumer = self
        self.task_buckets = {}
        self.on_message = None

    def consume(self):
        self.journal.append("consumes")

    def cancel(self):
        self.on_message(SimpleNamespace(delivery_tag="late", channel=self.channel))
        self.journal.append("cancelled")

    def perform_pending_operations(self):
        self.journal.append("acknowledgements sent")


class KindOfPool:
    leaves_running = False

    def __init__(self, journal):
        self.journal = journal

    def begin_no_more(self):
        self.journal.append("nothing begins")

    def cut(self):
        self.journal.append("cut")
        for request in tuple(state.active_requests):
            state.task_ready(request)

    def end(self):
        self.journal.append("pool ended")


@pytest.fixture
def journal():
    return []


@pytest.fixture
def world(app, journal, monkeypatch):
    """A worker that ends, without processes and without a broker."""
    app.conf.worker_soft_shutdown_timeout = 0.05
    channel = Channel(journal)
    consumer = Consumer(journal, channel)
    worker = SimpleNamespace(
        app=app, hub=None, consumer=consumer, pool_cls="celery.concurrency.solo:TaskPool"
    )
    for module in (shutdown, giving_back):
        freed = lambda _app, messages: journal.append(("freed", len(messages)))  # noqa: E731
        monkeypatch.setattr(module, "release_claims", freed)
    ending = Shutdown(worker)
    monkeypatch.setattr(ending, "_pool", KindOfPool(journal))
    monkeypatch.setattr(ending._drain_loop, "turn", lambda: time.sleep(0.01))
    monkeypatch.setattr(app._runtime, "stop_settling", lambda _patience: journal.append("settled"))
    return SimpleNamespace(app=app, worker=worker, channel=channel, ending=ending)


def test_the_order_of_a_way_out(world, journal):
    runs, waits = Request("runs", world.channel), Request("waits", world.channel)
    for request in (runs, waits):
        state.task_reserved(request)
    state.active_requests.add(runs)
    world.ending.run()
    assert [step for step in journal if step != ("freed", 0)] == [
        "cancelled",
        "nothing begins",
        ("freed", 1),
        ("given back", ["late"]),
        ("freed", 1),
        ("given back", ["waits"]),
        "cut",
        "settled",
        "acknowledgements sent",
        "pool ended",
    ]
    assert world.app._runtime.stopping.cutting


def test_without_anything_running_nothing_is_waited_for_or_cut(world, journal):
    world.app.conf.worker_soft_shutdown_timeout = 60
    world.ending.run()
    assert "cut" not in journal
    assert world.app._runtime.stopping()
    assert not world.app._runtime.stopping.cutting


def test_nothing_resumes_consuming_and_what_comes_all_the_same_goes_back(world, journal):
    world.ending.run()
    tasks = world.worker.consumer.task_consumer
    tasks.consume()  # as Celery does when a queue is added by remote control
    assert "consumes" not in journal
    tasks.on_message(SimpleNamespace(delivery_tag="stray", channel=world.channel))
    assert journal[-1] == ("given back", ["stray"])


def test_it_runs_once(world, journal):
    world.ending.run()
    told = list(journal)
    world.ending.run()
    assert journal == told


def test_the_grace_begins_with_the_first_signal_and_ends_with_the_second(world):
    world.app.conf.worker_soft_shutdown_timeout = 600
    assert world.ending.ask() is True
    assert world.ending._deadline > time.monotonic() + 300
    assert world.ending.ask() is False
    world.ending.hurry()
    assert world.ending._deadline <= time.monotonic()


def test_a_handler_on_the_main_thread_is_cut_when_the_grace_ends(world):
    world.ending.ask()
    with pytest.raises(Interrupt), INTERRUPTER:
        world.ending.hurry()
    assert world.app._runtime.stopping.cutting


def test_a_cold_shutdown_leaves_no_grace(world, journal, monkeypatch):
    world.app.conf.worker_soft_shutdown_timeout = 60
    state.active_requests.add(request := Request("runs", world.channel))
    monkeypatch.setattr(state, "should_terminate", 0)  # the exit code, which is false
    world.ending.run()
    assert "cut" in journal
    assert request not in state.active_requests


def test_what_breaks_on_the_way_out_leaves_celerys_own(world, monkeypatch, caplog):
    monkeypatch.setattr(world.ending, "_take_steps", lambda: 1 / 0)
    world.ending.run()
    assert "shutdown_broke" in caplog.text


def test_given_back_a_request_is_neither_run_nor_acknowledged_later(app, journal):
    channel = Channel(journal)
    begun, line, later = (Request(name, channel) for name in ("begun", "line", "later"))
    state.task_reserved(begun)
    state.task_reserved(line)
    state.task_scheduled(later)
    state.active_requests.add(begun)
    limited = Request("limited", channel)
    bucket = SimpleNamespace(contents=[(limited, 1)])
    found = unbegun(SimpleNamespace(task_buckets={"t": bucket, "u": None}))
    assert {request.id for request in found} == {"line", "later", "limited"}
    assert give_back_requests(app, found) == 3
    assert all(request.acknowledged for request in found)
    assert give_back_requests(app, found) == 0
    ((_, tags),) = journal
    assert sorted(tags) == ["later", "limited", "line"]
    assert set(state.reserved_requests) == {begun}


# -- what of Celery and billiard it stands on ----------------------------------------------------


@pytest.mark.parametrize("how", ["stop", "terminate"])
def test_celery_tells_its_consumer_to_close_before_it_closes_its_pool(how):
    """Its consumer has no such method as it comes, which Celery bears: we put ours there."""
    from celery.worker.consumer import Consumer as Celerys

    told = []
    worker = SimpleNamespace(
        consumer=SimpleNamespace(close=lambda: told.append("consumer"), connection=None),
        blueprint=SimpleNamespace(state=RUN),
        pool=SimpleNamespace(signal_safe=True),
        _shutdown=lambda warm: told.append("pool"),
        _send_worker_shutdown=lambda: None,
    )
    worker.signal_consumer_close = lambda: WorkController.signal_consumer_close(worker)
    getattr(WorkController, how)(worker)
    assert told == ["consumer", "pool"]
    assert not hasattr(Celerys, "close")


def test_every_app_puts_it_there(app):
    worker = SimpleNamespace(
        app=app, hub=None, consumer=SimpleNamespace(), pool_cls="celery.concurrency.solo:TaskPool"
    )
    ShutdownStep(worker).start(worker)
    assert worker.consumer.close.__func__ is Shutdown.run
    assert ShutdownStep in app.steps["worker"]


@pytest.mark.parametrize(
    "name",
    [
        "_join_exited_workers", "_stop_task_handler", "_worker_active", "shrink", "on_shrink",
        "flush",
    ],
)  # fmt: skip
def test_billiards_pool_has_what_we_call(name):
    assert callable(getattr(AsynPool, name))


def test_a_shrinking_pool_spares_children_that_were_given_a_task():
    ended = []

    def child(pid):
        return SimpleNamespace(pid=pid, terminate_controlled=lambda: ended.append(pid))

    def job(write_to=None, scheduled_for=None, pids=()):
        return SimpleNamespace(
            _write_to=write_to, _scheduled_for=scheduled_for, worker_pids=lambda: pids
        )

    written, scheduled, _runs, idle = children = [child(pid) for pid in range(4)]
    pool = AsynPool.__new__(AsynPool)
    pool._pool, pool._processes, pool._putlock = children, 4, None
    pool._cache = {1: job(write_to=written), 2: job(scheduled_for=scheduled), 3: job(pids=(2,))}
    spare_begun(pool)
    pool.shrink(1)
    assert ended == [idle.pid]
    pool._pool = children[:3]
    with pytest.raises(ValueError, match="busy"):
        pool.shrink(1)


def test_billiard_by_itself_does_not_spare_them():
    """If it does one day, `spare_begun` can go."""
    pool = AsynPool.__new__(AsynPool)
    process = SimpleNamespace(pid=1)
    pool._cache = {1: SimpleNamespace(_write_to=process, _scheduled_for=process, worker_pids=list)}
    assert not pool._worker_active(process)


def test_a_child_that_is_told_to_end_is_sent_nothing_more():
    def child(pid):
        process = SimpleNamespace(pid=pid, inqW_fd=pid + 10, _controlled_termination=False)

        def terminate_controlled():
            process._controlled_termination = True

        process.terminate_controlled = terminate_controlled
        return process

    pool = AsynPool.__new__(AsynPool)
    pool._pool, pool._processes, pool._putlock = [child(pid) for pid in range(3)], 3, None
    pool._cache, pool._all_inqueues = {}, {10, 11, 12}
    pass_by_ending(pool)
    pool.shrink(2)
    assert pool._all_inqueues == {12}


# -- signals -------------------------------------------------------------------------------------


@pytest.fixture
def in_child(monkeypatch):
    """Be a child of billiard's, whose SIGTERM handler was there before ours."""
    seen = []
    monkeypatch.setattr(
        shutdown, "current_process", lambda: SimpleNamespace(name="ForkPoolWorker-1")
    )
    monkeypatch.setattr(shutdown, "WORD_WITHIN", 0.0)
    old = signal.signal(signal.SIGTERM, lambda *_args: seen.append("billiard"))
    yield seen
    signal.signal(signal.SIGTERM, old)


def test_a_child_is_ended_by_sigterm_as_ever(app, in_child):
    shutdown.heed_cut(app._runtime.stopping)
    with INTERRUPTER:
        signal.raise_signal(signal.SIGTERM)
    assert in_child == ["billiard"]


def test_a_child_of_a_stopping_worker_leaves_it_to_its_parent(app, in_child):
    shutdown.heed_cut(app._runtime.stopping)
    app._runtime.stopping.begin()
    with INTERRUPTER:
        signal.raise_signal(signal.SIGTERM)
    assert in_child == []


def test_a_child_whose_grace_ended_cuts_its_handler(app, in_child):
    shutdown.heed_cut(app._runtime.stopping)
    app._runtime.stopping.cut()
    with pytest.raises(Interrupt), INTERRUPTER:
        signal.raise_signal(signal.SIGTERM)
    assert in_child == []


def test_a_child_that_settles_is_let_be(app, in_child):
    shutdown.heed_cut(app._runtime.stopping)
    app._runtime.stopping.cut()
    signal.raise_signal(signal.SIGTERM)
    assert in_child == []


def test_a_child_that_has_said_its_last_word_ends_by_sigterm(app, in_child):
    from celery import signals

    shutdown.heed_cut(app._runtime.stopping)
    app._runtime.stopping.cut()
    signals.worker_process_shutdown.send(sender=None, pid=1, exitcode=0)
    signal.raise_signal(signal.SIGTERM)
    assert in_child == ["billiard"]


def test_the_parent_keeps_its_own_sigterm(app):
    before = signal.getsignal(signal.SIGTERM)
    shutdown.heed_cut(app._runtime.stopping)
    assert signal.getsignal(signal.SIGTERM) is before


class Asked:
    def __init__(self):
        self.times = self.hurried = 0

    def ask(self):
        self.times += 1
        return self.times == 1

    def hurry(self):
        self.hurried += 1


@pytest.fixture
def installed(app, monkeypatch):
    kept = {
        name: signal.getsignal(name) for name in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
    }
    monkeypatch.setattr(state, "should_stop", None)
    monkeypatch.setattr(state, "should_terminate", None)
    asked = Asked()
    shutdown.install_handlers(SimpleNamespace(hostname="w@h", app=app), asked)
    yield asked
    for name, handler in kept.items():
        signal.signal(name, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_stops_the_worker_and_the_second_hurries(installed, number, capfd):
    signal.raise_signal(number)
    assert state.should_stop is not None
    assert (installed.times, installed.hurried) == (1, 0)
    signal.raise_signal(signal.SIGTERM)
    assert (installed.times, installed.hurried) == (2, 1)
    assert state.should_terminate is None
    assert capfd.readouterr().out.count("Warm shutdown") == 1


def test_sigquit_leaves_no_grace_and_does_not_wait_in_its_handler(installed, app, capfd):
    app.conf.worker_soft_shutdown_timeout = 600
    began = time.monotonic()
    signal.raise_signal(signal.SIGQUIT)
    assert time.monotonic() - began < 60
    assert installed.hurried == 1
    assert state.should_terminate is not None


# -- pools ---------------------------------------------------------------------------------------


def test_the_claim_of_a_child_that_heeds_nothing_is_freed_after_its_death(monkeypatch):
    journal = []
    request = SimpleNamespace(worker_pid=4711, acknowledged=False)
    state.active_requests.add(holder := Holder(request))
    monkeypatch.setattr(ending_pools, "CUT_WITHIN", 0.05)
    monkeypatch.setattr(ending_pools.os, "kill", lambda pid, number: journal.append((pid, number)))

    def join_exited():
        if (4711, signal.SIGKILL) in journal and holder in state.active_requests:
            journal.append("freed")  # where every dead child's claim is
            state.active_requests.discard(holder)

    billiard = SimpleNamespace(_join_exited_workers=join_exited)
    worker = SimpleNamespace(
        pool=SimpleNamespace(_pool=billiard, close=lambda: journal.append("no replacements"))
    )
    PreforkShutdown(worker, Turner()).cut()
    assert journal == [
        "no replacements", (4711, signal.SIGTERM), (4711, signal.SIGKILL), "freed",
    ]  # fmt: skip


class Holder:
    """A request that a weak set can hold."""

    def __init__(self, about):
        self.worker_pid, self.acknowledged = about.worker_pid, about.acknowledged


class Turner:
    def until(self, truth, deadline):
        while not truth():
            if time.monotonic() >= deadline():
                return False
            time.sleep(0.005)
        return True


def test_what_hangs_is_ended_by_the_watchdog(world, monkeypatch):
    ended = []
    monkeypatch.setattr(shutdown, "END_WITHIN", 0.05)
    monkeypatch.setattr(shutdown, "_exit", ended.append)
    world.ending._pool.kill = lambda: ended.append("children")
    watch = threading.Thread(target=world.ending.watch)
    watch.start()
    world.ending.ask()
    watch.join(60)
    assert ended == ["children", 70]
