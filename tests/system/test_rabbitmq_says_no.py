"""RabbitMQ is there and says no: it takes nothing, closes channels, refuses the login, for a while.

A worker goes on by itself, and consumes meanwhile where it may.
"""

from __future__ import annotations

import signal
import time
from datetime import timedelta

import pytest
from kombu import Connection

from angzarr.adapters.rabbitmq.dead_letters import RabbitMQDeadLetterQueue
from angzarr.dead_letters.queue import TooLarge
from angzarr.errors import BrokerUnavailable
from contracts.dead_letters import a_letter, ids, take
from endurance import soak
from polling import wait_until
from rabbitmq_servers import PrivateRabbitMQ

EVENTS = 30
WATERMARK = "vm_memory_monitor:set_vm_memory_high_watermark"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with PrivateRabbitMQ(tmp_path_factory.mktemp("alarms") / "rabbitmq") as server:
        yield server


@pytest.fixture
def alarm(server):
    """Let RabbitMQ be out of memory: it reads nothing more from who publishes."""
    yield lambda: server.evaluate(f"{WATERMARK}(0.00001).")
    server.evaluate(f"{WATERMARK}(0.6).")


@pytest.fixture
def site(make_site, server):
    return make_site(broker=server.url, letters=server.url)


def publish(site, *numbers, **event):
    for n in numbers:
        site.app.publish(site.module.Thing(n=n, **event), root="r")


def handled(site, *numbers):
    wait_until(lambda: {line["n"] for line in site.ran("handled")} >= set(numbers), f"{numbers}")


@pytest.mark.parametrize("pool", ["prefork", soak("solo")])
def test_workers_drain_a_rabbitmq_that_is_out_of_memory(site, alarm, pool):
    publish(site, *range(EVENTS), fate="slow")
    with site.worker(pool=pool) as worker:
        handled(site, 0)
        alarm()
        handled(site, *range(EVENTS))
        time.sleep(3)  # two of its heartbeats, which nobody takes
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
    assert len(site.ran("handled")) == EVENTS


def test_a_worker_that_starts_while_rabbitmq_is_out_of_memory_drains_it(site, alarm):
    publish(site, *range(3))
    alarm()
    with site.worker(pool="solo") as worker:
        handled(site, *range(3))
        assert worker.poll() is None


def test_who_publishes_while_rabbitmq_is_out_of_memory_is_told(site, server, alarm, monkeypatch):
    monkeypatch.setattr("angzarr.adapters.celery.publish.publisher.CONFIRMED_WITHIN", 1)
    monkeypatch.setattr("angzarr.adapters.rabbitmq.channel.CONFIRMED_WITHIN", 1)
    publish(site, 1)
    alarm()
    for send in (lambda: publish(site, 2), lambda: site.module.add.delay(1, 1)):
        with pytest.raises(BrokerUnavailable, match="out of memory or disk"):
            send()
    server.evaluate(f"{WATERMARK}(0.6).")
    publish(site, 3)
    with site.worker(pool="solo"):
        handled(site, 1, 3)


def test_a_message_held_longer_than_rabbitmq_waits_for_its_acknowledgement_is_handled_once(
    make_site, server, cable, redis_url
):
    server.evaluate(
        "application:set_env(rabbit, channel_tick_interval, 500),"
        " application:set_env(rabbit, consumer_timeout, 3000).",
    )
    proxy, store = cable(redis_url)
    site = make_site(broker=server.url, letters=server.url, store=store)
    with site.worker() as worker:
        publish(site, 1)
        handled(site, 1)
        proxy.cut()
        publish(site, 2)
        wait_until(lambda: "delivery_timeout" in site.text(), "RabbitMQ to lose its patience")
        proxy.mend()
        handled(site, 2)
        assert worker.poll() is None
    server.evaluate("application:set_env(rabbit, consumer_timeout, 1800000).")
    assert [line["n"] for line in site.ran("handled")] == [1, 2]


def change_password(server, password):
    server.evaluate(
        f'rabbit_auth_backend_internal:change_password(<<"guest">>, <<"{password}">>, <<"test">>).'
    )


@pytest.mark.parametrize("pool", [soak("prefork"), "solo"])
def test_a_worker_whose_login_is_refused_for_a_while_goes_on(site, server, pool):
    with site.worker(pool=pool) as worker:
        publish(site, 1)
        handled(site, 1)
        change_password(server, "another")
        server.evaluate('rabbit_networking:close_all_connections(<<"test">>).')
        wait_until(lambda: "ACCESS_REFUSED" in site.text(), "the login to be refused")
        time.sleep(3)
        change_password(server, "guest")
        refused = site.text().count("ACCESS_REFUSED")
        publish(site, 2)
        handled(site, 2)
        assert worker.poll() is None
    assert refused <= 8, "no hot loop"


def test_a_worker_whose_vhost_takes_no_connection_asks_seldom(site, server):
    with site.worker(pool="solo") as worker:
        publish(site, 1)
        handled(site, 1)
        server.evaluate(
            'rabbit_vhost_limit:set(<<"/">>, [{<<"max-connections">>, 0}], <<"test">>).'
        )
        server.evaluate('rabbit_networking:close_all_connections(<<"test">>).')
        wait_until(lambda: "NOT_ALLOWED" in site.text(), "the connection to be refused")
        time.sleep(3)
        refused = site.text().count("NOT_ALLOWED")
        server.evaluate('rabbit_vhost_limit:clear(<<"/">>, <<"test">>).')
        with Connection(server.url) as connection:
            connection.ensure_connection(max_retries=20, interval_start=0.1)
        publish(site, 2)
        handled(site, 2)
        assert worker.poll() is None
    assert refused <= 8, "no hot loop"


def test_a_letter_larger_than_rabbitmq_takes_is_too_large_and_keeps_no_other_back(server):
    server.evaluate("application:set_env(rabbit, max_message_size, 16384).")
    queue = RabbitMQDeadLetterQueue(server.url)
    large = a_letter("sizes", 1, metadata={"large": "x" * 16384})
    answers = queue.put([a_letter("sizes", 0), large, a_letter("sizes", 2)])
    server.evaluate("application:set_env(rabbit, max_message_size, 134217728).")
    assert (answers[0], answers[2]) == (None, None)
    assert isinstance(answers[1], TooLarge), answers
    assert "larger than configured max size 16384" in answers[1]
    taken = take(queue, ["sizes"], 2)  # the first may be there twice: its confirm was lost
    taken += queue.receive(["sizes"], limit=5, wait=timedelta(milliseconds=300))
    assert set(ids(taken)) == {"sizes-0", "sizes-2"}
    queue.close()
