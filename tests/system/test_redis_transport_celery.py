"""What Celery's users do, on our Redis transport: one worker for each pool, and an Angzarr app's.

Before anything else each fleet gets a task for later than kombu's ``visibility_timeout``; the last
test waits for it and counts every run there was.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from celery import chain, chord, group
from celery.exceptions import TaskRevokedError
from kombu import Consumer, Exchange, Queue

import warm_process
from endurance import soak
from polling import PATIENCE, wait_until
from system.conftest import PATH
from system.plain_fleet import Fleet, listen_until
from system.plain_site import HERE, PlainSite

FLEETS = ["prefork", "angzarr", "threads", soak("gevent"), soak("solo")]
#: Pools whose workers answer while tasks run, and those that can kill a task.
CONCURRENT, WITH_CHILDREN = FLEETS[:4], FLEETS[:2]
#: Seconds: kombu's transport gives back after 3, see plain_app.py.
LATER = 4.5


@pytest.fixture(scope="module", params=FLEETS)
def fleet(request, tmp_path_factory, redis_url):
    kind, pool = ("angzarr", "prefork") if request.param == "angzarr" else ("celery", request.param)
    letters = request.getfixturevalue("amqp_url") if kind == "angzarr" else ""
    folder = tmp_path_factory.mktemp("plain")
    site = PlainSite(folder, redis_url, kind=kind, pool=pool, letters=letters)
    slots = 1 if pool == "solo" else 2
    with contextlib.closing(site), site.worker(slots=slots) as worker:
        later = site.tasks.tell.apply_async(("later",), countdown=LATER)
        yield Fleet(site, worker, slots, later, [])


def only(fleets: list[str]):
    return pytest.mark.parametrize("fleet", fleets, indirect=True)


# -- canvas ----------------------------------------------------------------------------------------


def test_chain_group_chord_and_what_is_nested_give_their_results(fleet):
    add, total = fleet.site.tasks.add, fleet.site.tasks.total
    waits = [
        (chain(add.s(1, 2), add.s(10), add.s(100)).delay(), 113),
        (group(add.s(n, n) for n in range(4)).delay(), [0, 2, 4, 6]),
        (chord([add.s(1, 1), add.s(2, 2)], total.s()).delay(), 6),
        (
            chain(
                group(add.s(1, 1), chord([add.s(2, 2), chain(add.s(3, 3), add.s(4))], total.s())),
                total.s(),
                add.s(1000),
            ).delay(),
            1016,
        ),
        (chain(add.s(1, 1), group(add.s(1), add.s(2)), total.s()).delay(), 7),
    ]
    assert [result.get(timeout=60) for result, _ in waits] == [expected for _, expected in waits]


# -- retries and times -----------------------------------------------------------------------------


def test_a_task_is_retried_until_it_works_or_no_retry_is_left(fleet):
    works, fails = fleet.site.tasks.flaky.delay(2), fleet.site.tasks.hopeless.delay()
    assert works.get(timeout=60) == 2
    with pytest.raises(KeyError):
        fails.get(timeout=60)
    assert [run["retries"] for run in fleet.site.runs_of(works)] == [0, 1, 2]
    assert [run["retries"] for run in fleet.site.runs_of(fails)] == [0, 1, 2]


def test_countdown_and_eta_are_waited_for_and_what_expired_never_runs(fleet):
    tell, began = fleet.site.tasks.tell, time.time()
    by_countdown = tell.apply_async(countdown=0.5)
    by_eta = tell.apply_async(eta=datetime.now(UTC) + timedelta(seconds=0.5))
    expires_meanwhile = tell.apply_async(countdown=0.6, expires=0.2)
    expired = tell.apply_async(expires=datetime.now(UTC) - timedelta(seconds=1))
    runs = fleet.site.wait_runs(by_countdown, by_eta)
    assert all(run["at"] - began >= 0.49 for run in runs)
    fleet.expect_revoked(expires_meanwhile, expired)


# -- revoke ----------------------------------------------------------------------------------------


def test_a_task_revoked_before_its_time_never_runs(fleet):
    for countdown in (1, 10, 60):
        began = time.monotonic()
        result = fleet.site.tasks.tell.apply_async(countdown=countdown)
        fleet.tell("revoke", result.id)
        if time.monotonic() < began + countdown:  # else a slow machine may have run it
            break
    fleet.expect_revoked(result)


# Celery's other pools take in at once what was prefetched, and look no more.
@only(WITH_CHILDREN)
def test_a_task_revoked_behind_others_never_runs(fleet):
    with fleet.site.closed_gates(fleet.slots):
        result = fleet.site.tasks.tell.delay()
        fleet.tell("revoke", result.id)
    fleet.expect_revoked(result)


@only(WITH_CHILDREN)
def test_a_running_task_is_terminated_and_not_given_back(fleet):
    result = fleet.site.tasks.nap.apply_async((60,))
    fleet.site.wait_runs(result)
    fleet.tell("revoke", result.id, terminate=True)
    with pytest.raises(TaskRevokedError):
        result.get(timeout=60)
    wait_until(lambda: result.id not in fleet.site.held(), "the message to be let go")
    assert fleet.site.tasks.add.delay(1, 1).get(timeout=60) == 2
    assert len(fleet.site.runs_of(result)) == 1


# -- remote control --------------------------------------------------------------------------------


def test_a_worker_tells_what_it_is(fleet):
    assert fleet.inspect("ping") == {"ok": "pong"}
    assert [queue["name"] for queue in fleet.inspect("active_queues")] == [fleet.site.prefix]
    assert "plain_app.add" in fleet.inspect("registered")
    assert fleet.site.tasks.add.delay(1, 1).get(timeout=60) == 2
    stats = fleet.inspect("stats")
    assert stats["total"]["plain_app.add"] > 0


@only([kind for kind in FLEETS if kind != "angzarr"])  # its workers hold nothing that waits
def test_a_worker_tells_what_it_waits_for(fleet):
    waiting = fleet.site.tasks.tell.apply_async(countdown=10)
    wait_until(
        lambda: waiting.id in [one["request"]["id"] for one in fleet.inspect("scheduled")],
        "the task to be scheduled",
    )


@only(CONCURRENT)
def test_a_busy_worker_tells_what_runs_and_what_it_has_reserved(fleet):
    with fleet.site.closed_gates(fleet.slots) as gates:
        behind = fleet.site.tasks.tell.delay()
        running = {one["id"] for one in fleet.inspect("active")}
        wait_until(
            lambda: behind.id in [one["id"] for one in fleet.inspect("reserved")],
            "the task behind them to be reserved",
        )
    assert running == {gate.id for gate in gates}
    fleet.site.wait_runs(behind)


@only(FLEETS[:1])
def test_the_inspect_command_reaches_the_worker(fleet):
    command = ["celery", "-A", "plain_app", "inspect", "ping"]
    said = warm_process.run(command, folder=HERE, environment={**os.environ, "PYTHONPATH": PATH})
    assert f"{fleet.worker.name}: OK" in said.stdout
    assert said.returncode == 0


def test_a_rate_limit_is_kept_and_lifted(fleet):
    fleet.tell("rate_limit", "plain_app.limited", "4/s")
    began = time.time()
    slow = [fleet.site.tasks.limited.delay() for _ in range(4)]
    assert max(run["at"] for run in fleet.site.wait_runs(*slow)) - began >= 0.7
    fleet.tell("rate_limit", "plain_app.limited", "1/h")
    fleet.tell("rate_limit", "plain_app.limited", 0)
    fast = [fleet.site.tasks.limited.delay() for _ in range(12)]
    fleet.site.wait_runs(*fast)  # which would take until tomorrow


def test_a_consumer_is_added_cancelled_and_added_again(fleet):
    queue, tell = f"{fleet.site.prefix}-more", fleet.site.tasks.tell
    early = tell.apply_async(queue=queue)
    fleet.tell("add_consumer", queue)
    fleet.site.wait_runs(early)
    fleet.tell("cancel_consumer", queue)
    fleet.wait_until_told(queue, consumes=False)
    kept = [tell.apply_async(queue=queue) for _ in range(3)]
    fleet.site.wait_runs(tell.delay())
    assert fleet.site.runs_of(*kept) == []
    assert fleet.site.redis.llen(queue) == 3
    fleet.tell("add_consumer", queue)
    fleet.site.wait_runs(*kept)
    fleet.tell("cancel_consumer", queue)


def test_a_broadcast_reaches_every_consumer_once(fleet):
    queue, exchange, heard = f"{fleet.site.prefix}-ear", f"{fleet.site.prefix}-all", []
    ear = Queue(f"{queue}-2", Exchange(exchange, type="fanout"), routing_key="all")
    fleet.tell("add_consumer", queue, exchange, exchange_type="fanout", routing_key="all")
    with (
        fleet.site.app.connection_for_read() as connection,
        Consumer(
            connection,
            [ear],
            on_message=lambda message: heard.append(message.headers["id"]),
            no_ack=True,
        ),
    ):
        listen_until(connection, lambda: fleet.hears(ear))
        told = [fleet.site.tasks.tell.apply_async(queue=ear) for _ in range(6)]
        fleet.site.wait_runs(*told)
        listen_until(connection, lambda: told[-1].id in heard)
    assert [id_ for id_ in heard if id_ in {one.id for one in told}] == [one.id for one in told]
    fleet.tell("cancel_consumer", queue)
    fleet.wait_until_told(queue, consumes=False)


@only([*WITH_CHILDREN, soak("gevent")])
def test_a_pool_that_grew_runs_more_at_once(fleet):
    fleet.tell("pool_grow", 1)
    with fleet.site.closed_gates(fleet.slots + 1):
        pass
    fleet.tell("pool_shrink", 1)


@only(["angzarr"])  # Celery's own pool sends tasks to children that it has told to end
def test_a_child_that_is_told_to_end_is_sent_nothing_more(fleet):
    linger, add = fleet.site.folder / "linger", fleet.site.tasks.add
    fleet.tell("pool_grow", 1)
    with fleet.site.closed_gates(fleet.slots + 1):
        pass
    linger.touch()
    try:
        # Refused while the parent has not heard yet that the gates ended.
        wait_until(lambda: "ok" in fleet.tell("pool_shrink", 1)[0][fleet.worker.name])
        fleet.site.wait_runs(*[add.delay(n, 1) for n in range(20)])
    finally:
        linger.unlink()


# -- events ----------------------------------------------------------------------------------------


def test_events_tell_the_life_of_a_task(fleet):
    seen: list[tuple[str, str | None]] = []
    with fleet.site.app.connection_for_read() as connection:
        receiver = fleet.site.app.events.Receiver(
            connection,
            handlers={"*": lambda event: seen.append((event["type"], event.get("uuid")))},
        )
        listener = threading.Thread(target=_listen, args=(receiver,), daemon=True)
        listener.start()
        wait_until(lambda: ("worker-heartbeat", None) in seen, "a heartbeat")
        result = fleet.site.tasks.flaky.delay(1)
        life = {"task-sent", "task-received", "task-started", "task-retried", "task-succeeded"}
        wait_until(
            lambda: {kind for kind, id_ in seen if id_ == result.id} == life,
            f"all of {life}",
        )
        receiver.should_stop = True
        listener.join(60)
    assert not listener.is_alive()


def _listen(receiver) -> None:
    with contextlib.suppress(TimeoutError, OSError):
        receiver.capture(limit=None, timeout=PATIENCE, wakeup=True)


# -- queues, priorities and a stop -----------------------------------------------------------------


@only(FLEETS[:2])
def test_purge_empties_a_queue_at_every_priority(fleet):
    queue = f"{fleet.site.prefix}-purged"
    for priority in (0, 3, 6, 9, 9):
        fleet.site.tasks.tell.apply_async(queue=queue, priority=priority)
    assert len(fleet.site.waiting(queue)) == 5
    with fleet.site.app.connection_for_write() as connection:
        fleet.site.app.amqp.queues.add(queue)
        assert fleet.site.app.amqp.queues[queue](connection.default_channel).purge() == 5
    assert fleet.site.waiting(queue) == []


def test_priorities_order_what_runs_and_a_stop_gives_back_what_did_not(fleet):
    site, queue = fleet.site, f"{fleet.site.prefix}-own"
    tell = site.tasks.tell
    by_priority = {p: tell.apply_async(queue=queue, priority=p) for p in (9, 0, 6, 3)}
    with site.worker(
        "--without-mingle", "--without-gossip", queue=queue, slots=1, PLAIN_PREFETCH="4"
    ) as worker:
        runs = site.wait_runs(*by_priority.values())
        assert [run["id"] for run in runs] == [by_priority[p].id for p in (0, 3, 6, 9)]
        with site.closed_gates(1, queue=queue):
            behind = [tell.apply_async(queue=queue) for _ in range(7)]
            if site.pool not in {"solo", "gevent"}:  # a full pool stops these from taking more in
                wait_until(lambda: len(site.held()) >= 3, "some to be prefetched")
            worker.process.send_signal(signal.SIGTERM)
            worker.wait_said("Warm shutdown")
        assert worker.process.wait(60) == 0
    left = [message["headers"]["id"] for message in site.waiting(queue)]
    ran = [run["id"] for run in site.runs_of(*behind)]
    assert ran + left == [result.id for result in behind]
    assert len(left) >= 3
    assert all(message["headers"]["id"] not in site.held() for message in site.waiting(queue))
    site.redis.delete(*site.lists(queue))


# -- the count -------------------------------------------------------------------------------------


def test_what_was_for_later_ran_once_and_so_did_everything_else(fleet):
    fleet.site.wait_runs(fleet.later)
    runs = Counter((run["id"], run["retries"]) for run in fleet.site.journal())
    assert {run: times for run, times in runs.items() if times > 1} == {}
    wait_until(lambda: fleet.site.held() == [], "everything to be acknowledged")
    assert fleet.site.runs_of(*fleet.never) == []
    assert fleet.site.waiting(fleet.site.prefix) == []


def test_no_acknowledgement_came_too_late(fleet):
    assert "acknowledged_too_late" not in fleet.worker.text()
