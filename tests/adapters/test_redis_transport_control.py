"""Remote control: kombu's pidbox between the two transports, and Celery's control of a worker."""

from __future__ import annotations

import threading
from contextlib import contextmanager

import pytest
from celery import Celery
from kombu import Consumer, Exchange, Queue
from kombu.pidbox import Mailbox
from tests.adapters.redis_control_site import Site
from tests.adapters.redis_loop import looped
from tests.adapters.redis_sides import OURS, STOCK, both_ways, connect

from redis_servers import wait_until

SIDES = {"ours": OURS, "stock": STOCK}


# -- pidbox ----------------------------------------------------------------------------------


@contextmanager
def node(connection, mailbox, name):
    """A node called *name* that answers `double`, in a thread, on a connection of its own."""
    over, channel = threading.Event(), connection.channel()
    heard = []
    one = mailbox(connection).Node(name, channel=channel)

    @one.handler
    def double(_state, n):
        heard.append(n)
        return n * 2

    def listen():
        while not over.is_set():
            try:
                connection.drain_events(timeout=0.1)
            except TimeoutError:
                continue

    consumer = one.listen(channel)
    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        yield heard
    finally:
        over.set()
        thread.join(60)
        consumer.cancel()
        channel.close()


@both_ways
def test_a_node_answers_a_call_of_the_other_side(redis_broker, raw, unique_name, one, other):
    mailbox = Mailbox(unique_name, type="fanout")
    with (
        connect(redis_broker, one) as served,
        connect(redis_broker, other) as asking,
        node(served, mailbox, "node-1") as heard,
    ):
        caller = mailbox(asking)
        # Until it is subscribed nobody hears; a call that was not heard has no answer.
        answers = wait_until(
            lambda: caller.multi_call("double", {"n": 21}, timeout=2, limit=1), "an answer"
        )
        assert answers == [{"node-1": 42}]
        assert set(heard) == {21}
        assert caller.call(["node-2"], "double", {"n": 1}, timeout=0.2) == []
        assert caller.call(["node-1"], "double", {"n": 1}, timeout=0.5) == [{"node-1": 2}]
        caller.cast(["node-1"], "double", {"n": 5})
        wait_until(lambda: heard[-1] == 5, "what was cast")
    replies = f"*{mailbox.reply_exchange.name}"
    assert [key for key in raw.scan_iter(replies) if raw.type(key) == b"list"] == []


@pytest.mark.parametrize("side", SIDES.values(), ids=SIDES.keys())
def test_a_broadcast_is_answered_by_nodes_of_both_sides(redis_broker, unique_name, side):
    mailbox = Mailbox(unique_name, type="fanout")
    with (
        connect(redis_broker, OURS) as ours,
        connect(redis_broker, STOCK) as stock,
        connect(redis_broker, side) as asking,
        node(ours, mailbox, "ours"),
        node(stock, mailbox, "stock"),
    ):
        caller = mailbox(asking)

        def both():
            answers = caller.multi_call("double", {"n": 4}, timeout=2, limit=2)
            return len(answers) == 2 and answers

        answers = wait_until(both, "both answers")
        assert {name: n for answer in answers for name, n in answer.items()} == {
            "ours": 8,
            "stock": 8,
        }


def test_an_event_of_a_connection_that_is_gone_does_not_stop_the_loop(redis_broker, unique_name):
    """Connections that are opened anew get the numbers of those that were lost."""
    with looped(redis_broker, unique_name) as worker:
        news = Exchange(f"{unique_name}-news", type="fanout")
        ear = Queue(f"{unique_name}-ear", news, auto_delete=True, channel=worker.channel)
        Consumer(worker.channel, [ear], on_message=worker._take).consume()
        cycle = worker.channel.connection.cycle

        def ears():
            return [fd for fd, (_, kind) in cycle._fd_to_chan.items() if kind == "LISTEN"]

        worker.until(ears, "an ear")
        (ear_fd,) = ears()
        worker.rest()  # the answers to its subscription are read
        stale = threading.Thread(target=cycle.on_readable, args=(ear_fd,), daemon=True)
        stale.start()
        stale.join(60)
        assert not stale.is_alive()
        with connect(redis_broker, OURS) as other:
            other.Producer().publish("heard", exchange=news, declare=[news])
        worker.until(lambda: worker.bodies == ["heard"], "the news")


# -- Celery ----------------------------------------------------------------------------------


@pytest.fixture
def site(redis_broker, unique_name, tmp_path):
    return Site(redis_broker, unique_name, tmp_path / "worker.log")


@pytest.mark.parametrize("worker", SIDES.values(), ids=[f"worker-{name}" for name in SIDES])
def test_a_worker_is_steered_from_both_sides(site, raw, worker):
    with site.worker(worker):
        # Only ours writes down who holds messages.
        assert raw.exists(f"{site.name}:unacked:owners") == (worker == OURS)
        for side in SIDES.values():
            with site.app(side) as app:
                steers(app, site, raw, exact=worker == OURS)


def steers(app: Celery, site: Site, raw, *, exact: bool) -> None:
    """Steer the worker; a stock one may take one more message after it was told to stop."""
    control, one = app.control, {"destination": [site.host], "timeout": 10, "limit": 1}
    assert control.ping(**one) == [{site.host: {"ok": "pong"}}]
    inspect = control.inspect(destination=[site.host], timeout=10, limit=1)
    assert [queue["name"] for queue in inspect.active_queues()[site.host]] == ["tasks"]
    assert "note" in inspect.registered()[site.host]

    app.send_task("note", ["first"])
    ran(raw, site, "first")
    assert inspect.stats()[site.host]["total"]["note"] >= 1

    assert control.cancel_consumer("tasks", reply=True, **one)[0][site.host]["ok"]
    app.send_task("note", ["waits"])
    app.send_task("note", ["other"], queue="more")
    assert control.add_consumer("more", reply=True, **one)[0][site.host]["ok"]
    ran(raw, site, "other")
    assert raw.llen(f"{site.name}:tasks") == 1 or not exact
    assert control.add_consumer("tasks", reply=True, **one)[0][site.host]["ok"]
    ran(raw, site, "waits")
    assert control.cancel_consumer("more", reply=True, **one)[0][site.host]["ok"]

    control.revoke("revoked-id", **{**one, "reply": True})
    assert "revoked-id" in inspect.revoked()[site.host]
    app.send_task("note", ["revoked"], task_id="revoked-id")
    app.send_task("note", ["last"])
    ran(raw, site, "last")
    order = [what for what in raw.lrange(f"{site.name}-ran", 0, -1) if what != b"purged"]
    assert order == [b"first", b"other", b"waits", b"last"]
    raw.delete(f"{site.name}-ran")

    assert control.cancel_consumer("tasks", reply=True, **one)[0][site.host]["ok"]
    for _ in range(3):
        app.send_task("note", ["purged"])
    assert control.purge() in ({3} if exact else {2, 3})
    assert control.add_consumer("tasks", reply=True, **one)[0][site.host]["ok"]


def ran(raw, site, what) -> None:
    key = f"{site.name}-ran"
    wait_until(lambda: raw.lpos(key, what) is not None, f"{what} to run")


def test_a_worker_told_to_shut_down_holds_nothing(site, raw):
    with site.worker(OURS) as process, site.app(STOCK) as app:
        app.control.shutdown(destination=[site.host])
        assert process.wait(60) == 0
    assert list(raw.scan_iter(f"{site.name}:*unacked*")) == []
    assert list(raw.scan_iter(f"{site.name}:angzarr:*")) == []
