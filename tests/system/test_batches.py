"""Batch handlers in real workers: every pool, killed processes, lost connections, stops."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest

from endurance import soak
from polling import wait_until
from system.test_angzarr_worker import SupervisedSite

MANY = 40
#: As the app says.
SIZE = 10


class BatchSite(SupervisedSite):
    """A site of batch handlers."""

    name = "batch_app"

    def publish(self, *numbers, type_="Part", **said):
        for n in numbers:
            event = {"n": n, **said}
            self.app.publish(event, type=type_, id=f"part-{n}", domain="thing")

    def handled(self):
        """Return how often each part was handled."""
        return Counter(line["n"] for line in self.ran("part"))

    def wait_handled(self, numbers):
        wait_until(lambda: self.handled().keys() >= set(numbers), "all parts to be handled")

    @property
    def batches(self):
        return [line["ns"] for line in self.ran("batch")]


@pytest.fixture
def site(request, tmp_path, monkeypatch, unique_name):
    """A site of batch handlers on the broker named by the test's parameter."""
    broker = getattr(request, "param", "redis")
    made = request.getfixturevalue(f"{broker}_site_environment")
    site = BatchSite(tmp_path, {"ROAD_PREFIX": unique_name, **made}, monkeypatch)
    site.forget_letters("thing", "unknown")
    yield site
    site.close()


@pytest.mark.parametrize(
    ("site", "pool"),
    [
        ("redis", "prefork"), ("amqp", "prefork"), ("redis", "solo"), ("amqp", "solo"),
        ("redis", "threads"), ("amqp", "threads"), ("redis", "gevent"), ("amqp", "gevent"),
        soak("sqs", "prefork"),
    ],
    indirect=["site"],
)  # fmt: skip
def test_every_event_is_handled_once_and_most_of_them_together(site, pool):
    site.publish(*range(MANY))
    site.publish(*range(0, MANY, 2))  # duplicates, in the same batch or in a later one
    with site.worker(pool=pool, ROAD_ASYNC="0"):
        site.wait_handled(range(MANY))
        assert site.handled() == dict.fromkeys(range(MANY), 1)
    assert max(map(len, site.batches)) > 1
    assert max(map(len, site.batches)) <= SIZE


def test_an_async_handler_takes_batches(make_site):
    site = make_site(make=BatchSite, BATCH_ASYNC="1")
    site.publish(*range(MANY), type_="AsyncPart")
    with site.worker(pool="threads"):
        site.wait_handled(range(MANY))
    assert site.handled() == dict.fromkeys(range(MANY), 1)
    assert max(map(len, site.batches)) > 1


@pytest.mark.parametrize("site", ["redis", "amqp"], indirect=True)
def test_a_child_that_is_killed_amid_a_batch_loses_nothing_and_repeats_nothing(site):
    with site.worker(pool="prefork"):
        site.publish(*range(MANY))
        site.wait_handled(range(MANY))
        site.publish(*range(100, 105))
        site.publish(105, does="kill")
        site.publish(*range(106, 110))
        site.wait_handled([*range(MANY), *range(100, 110)])
        assert set(site.handled().values()) == {1}


@pytest.mark.parametrize("site", ["redis", "amqp"], indirect=True)
def test_a_worker_that_is_killed_amid_a_batch_loses_nothing_and_repeats_nothing(site):
    with site.worker(pool="solo") as worker:
        site.publish(*range(MANY))
        site.wait_handled(range(MANY))
        site.publish(*range(100, 105))
        site.publish(105, does="kill")
        wait_until(lambda: worker.poll() is not None, "the worker to be dead")
    with site.worker(pool="solo"):
        site.wait_handled([*range(MANY), *range(100, 106)])
        assert set(site.handled().values()) == {1}


@pytest.mark.parametrize("site", ["redis", "amqp"], indirect=True)
def test_what_kills_each_process_ends_as_poison_and_what_was_in_its_batch_does_not(site):
    site.publish(*range(5))
    site.publish(5, does="always_kill")
    site.publish(*range(6, 10))
    with site.worker(pool="prefork"):
        (letter,) = site.letters("thing")
        assert (letter.reason, letter.event.id) == ("poison", "part-5")
        site.wait_handled({*range(10)} - {5})
        assert set(site.handled().values()) == {1}


@pytest.mark.parametrize(
    ("site", "pool"), [("redis", "prefork"), ("amqp", "threads")], indirect=["site"]
)
def test_each_event_has_an_end_of_its_own(site, pool):
    site.publish(*range(4))
    site.publish(4, does="fail")
    site.publish(5, does="give_up")
    site.publish(*range(6, 9))
    with site.worker(pool=pool):
        (letter,) = site.letters("thing")
        assert letter.event.id == "part-5"
        site.wait_handled({*range(9)} - {5})
        assert site.handled() == dict.fromkeys({*range(9)} - {5}, 1)
    assert [4] in site.batches  # it was retried alone


def test_one_event_that_fails_its_batch_takes_no_other_with_it(site):
    site.publish(*range(4))
    site.publish(4, does="raise")
    site.publish(*range(5, 9))
    with site.worker(pool="prefork"):
        (letter,) = site.letters("thing")
        assert letter.event.id == "part-4"
        site.wait_handled({*range(9)} - {4})
        assert set(site.handled().values()) == {1}


@pytest.mark.parametrize("way", ["prefork", "processes"])
def test_a_soft_time_limit_counts_for_each_event_of_its_batch(make_site, way):
    site = make_site(make=BatchSite, BATCH_LIMITED="1")
    site.publish(0, type_="SoftPart", does="hang")
    site.publish(1, 2, type_="SoftPart")
    one = site.worker(pool="prefork") if way == "prefork" else site.supervisor("--processes", "2")
    with one:
        site.wait_handled(range(3))
        assert set(site.handled().values()) == {1}
    assert sorted(map(tuple, site.batches[-3:])) == [(0,), (1,), (2,)]


@pytest.mark.parametrize("broker", ["redis", "amqp"])
def test_processes_of_angzarr_worker_take_batches_and_one_that_is_killed_loses_nothing(
    broker, make_site, redis_url, amqp_url
):
    site = make_site(broker=redis_url if broker == "redis" else amqp_url, make=BatchSite)
    with site.supervisor("--processes", "2"):
        site.publish(*range(MANY))
        site.wait_handled(range(MANY))
        site.publish(*range(100, 105))
        site.publish(105, does="kill")
        site.publish(*range(106, 110))
        site.wait_handled([*range(MANY), *range(100, 110)])
        assert set(site.handled().values()) == {1}
    assert max(map(len, site.batches)) > 1


@pytest.mark.parametrize(
    ("broker", "pool"), [("redis", "prefork"), ("amqp", "prefork"), ("amqp", "threads")]
)
def test_a_store_that_is_away_when_a_batch_ends_repeats_nothing(
    broker, pool, make_site, cable, redis_url, amqp_url
):
    proxy, store = cable(redis_url)
    site = make_site(
        broker=redis_url if broker == "redis" else amqp_url, store=store, make=BatchSite
    )
    with site.worker(pool=pool):
        site.publish(0, does="wait")
        site.publish(*range(1, 6))
        site.wait_ran("waiting")
        proxy.cut()
        Path(f"{site.journal}.go").touch()
        site.wait_handled(range(6))
        wait_until(lambda: "could not" in site.text(), "the store to be missed")
        proxy.mend()
        site.publish(100)
        site.wait_handled([100])
        site.publish(*range(6))  # duplicates
        site.publish(101)
        site.wait_handled([101])
    assert site.handled() == dict.fromkeys([*range(6), 100, 101], 1)


def test_a_hard_time_limit_counts_for_each_event_of_its_batch(make_site):
    site = make_site(make=BatchSite, BATCH_LIMITED="1")
    site.publish(0, type_="LimitedPart", does="hang")
    site.publish(1, 2, type_="LimitedPart")
    with site.worker(pool="prefork"):
        site.wait_handled(range(3))
        assert set(site.handled().values()) == {1}
    assert sorted(map(tuple, site.batches[-3:])) == [(0,), (1,), (2,)]


@pytest.mark.parametrize(
    ("site", "pool"),
    [("redis", "prefork"), ("amqp", "prefork"), ("redis", "solo"), ("amqp", "threads")],
    indirect=["site"],
)
def test_a_worker_that_stops_gives_back_what_it_gathers(site, pool):
    with site.worker(pool=pool, BATCH_WAIT="60") as worker:
        site.publish(0, 1, 2)
        wait_until(lambda: site.text().count("received") >= 3, "the messages to be received")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
    assert site.batches == []
    with site.worker(pool=pool):
        site.wait_handled(range(3))
    assert set(site.handled().values()) == {1}


@pytest.mark.parametrize("broker", ["redis", "amqp"])
def test_a_lost_connection_loses_nothing_of_what_is_gathered(
    broker, make_site, cable, redis_url, amqp_url
):
    proxy, through = cable(redis_url if broker == "redis" else amqp_url)
    site = make_site(broker=through, make=BatchSite, BATCH_WAIT="5")
    with site.worker(pool="prefork"):
        site.publish(0, 1, 2)
        wait_until(lambda: site.text().count("received") >= 3, "the messages to be received")
        proxy.cut()
        proxy.mend()
        site.wait_handled(range(3))
    assert set(site.handled().values()) == {1}
