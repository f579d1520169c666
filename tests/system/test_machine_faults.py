"""A fault of the machine is not a fault of the message, which is handled once there is room."""

from __future__ import annotations

import json
import os
import resource
import signal
import urllib.request
from collections import Counter
from datetime import timedelta
from urllib.error import HTTPError

import pytest

from polling import wait_until
from redis_servers import free_port
from system.conftest import Site

EVENTS = 40


class Faulty(Site):
    """A site whose machine fails it."""

    name = "faulty_app"

    #: The folder of its workers' faults.
    faults = ""

    def begun_worker(self, *options, **more):
        return super().begun_worker(*options, ROAD_FAULTS=self.faults, **more)


@pytest.fixture
def faults(tmp_path):
    folder = tmp_path / "faults"
    folder.mkdir()
    return folder


class Sites:
    """Makes one site, and shows its log if the test fails."""

    def __init__(self, make):
        self._make, self._site = make, None

    def __call__(self, broker):
        self._site = self._make(broker)
        return self._site

    def text(self):
        return self._site.text() if self._site else ""


@pytest.fixture
def faulty(make_site, faults, redis_url, amqp_url):
    def make(broker):
        url = redis_url if broker == "redis" else amqp_url
        site = make_site(broker=url, make=Faulty)
        site.faults = str(faults)
        return site

    return Sites(make)


def publish(site, numbers, **event):
    for n in numbers:
        site.app.publish(site.module.Thing(n=n, **event), id=f"{site.module.PREFIX}-{n}")


def handled(site):
    return Counter(line["n"] for line in site.ran("handled"))


def ours(site, number=1, domain="thing"):
    """Return *number* letters of this site's own events at most; others' are none of ours."""
    queue, found = site.app.ops.open_dead_letter_queue(), []
    try:
        while receipts := queue.receive([domain], limit=100, wait=timedelta(seconds=1)):
            queue.done(receipts)
            letters = [receipt.letter for receipt in receipts]
            found += [one for one in letters if site.module.PREFIX in str(one.message.headers)]
            if len(found) >= number:
                break
        return found
    finally:
        queue.close()


def asked(port, what):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{what}") as answer:
            return answer.read().decode()
    except HTTPError as error:  # it is not ready; that is an answer
        return error.read().decode()


@pytest.mark.parametrize("broker", ["redis", "amqp"])
def test_threads_that_cannot_start_cost_speed_and_no_event(faulty, broker):
    site = faulty(broker)
    with site.worker("--concurrency", "20", pool="threads", ROAD_MOST_THREADS="3") as worker:
        publish(site, range(EVENTS), fate="gated")
        wait_until(lambda: "threads_short: 3 of 20 threads run" in site.text(), "it to say so")
        site.journal.with_name("gate").touch()
        wait_until(lambda: len(handled(site)) == EVENTS, "all events handled")
        assert worker.poll() is None
    assert set(handled(site).values()) == {1}, "a refused task is not run by another thread"
    assert not ours(site)


@pytest.mark.parametrize(
    ("broker", "pool", "fault"),
    [
        ("redis", "threads", "memory"), ("amqp", "prefork", "memory"), ("amqp", "solo", "memory"),
        ("redis", "prefork", "bug"), ("amqp", "threads", "pool"),
    ],
)  # fmt: skip
def test_what_the_process_cannot_take_goes_back_and_is_handled_later(
    faulty, faults, broker, pool, fault
):
    site = faulty(broker)
    with site.worker(pool=pool) as worker:
        (faults / fault).touch()
        publish(site, range(5))
        wait_until(lambda: "message_not_taken" in site.text(), "the worker to say why")
        (faults / fault).unlink()
        wait_until(lambda: len(handled(site)) == 5, "all events handled")
        assert worker.poll() is None
    assert set(handled(site).values()) == {1}
    assert not ours(site)


def test_a_bug_that_one_message_brings_out_ends_as_a_letter_that_can_be_replayed(faulty, faults):
    site = faulty("redis")
    with site.worker(pool="threads") as worker:
        (faults / "bug").touch()
        publish(site, [1])
        (letter,) = wait_until(lambda: ours(site), "its letter")
        assert worker.poll() is None
    assert (letter.error_code, letter.error_message) == ("NOT_TAKEN", "nobody foresaw this")
    assert handled(site) == {}


def test_a_fork_that_fails_after_a_child_died_is_tried_again(faulty, faults):
    site = faulty("redis")
    with site.worker("--concurrency", "2") as worker:
        publish(site, range(4))
        wait_until(lambda: len(handled(site)) == 4, "the first events handled")
        (faults / "fork").touch()
        for child in {line["pid"] for line in site.ran("handled")}:
            os.kill(child, signal.SIGKILL)
        wait_until(lambda: "child_not_started" in site.text(), "a fork to fail")
        publish(site, range(4, 8))
        (faults / "fork").unlink()
        wait_until(lambda: len(handled(site)) == 8, "the others handled")
        assert worker.poll() is None
    assert not ours(site)


@pytest.mark.parametrize(("broker", "pool"), [("redis", "threads"), ("amqp", "prefork")])
def test_a_worker_whose_settle_thread_died_says_so_and_settles_once_it_has_another(
    faulty, faults, broker, pool
):
    site, port = faulty(broker), free_port()

    def settling():
        return json.loads(asked(port, "readyz"))["conditions"]["settling"]

    with site.worker(pool=pool, ANGZARR_HEALTH__PORT=str(port)) as worker:
        publish(site, [1])
        wait_until(lambda: handled(site), "the first event handled")
        assert settling()["ok"]
        (faults / "settle").touch()
        site.app.send_task("no_such_task", task_id=f"{site.module.PREFIX}-unknown")
        wait_until(lambda: "settle_thread_not_started" in site.text(), "the worker to say so")
        assert not settling()["ok"]
        assert "does not run" in settling()["says"]
        publish(site, range(2, 6))
        wait_until(lambda: len(handled(site)) == 5, "handlers to go on")
        (faults / "settle").unlink()
        (letter,) = wait_until(lambda: ours(site, domain="unknown"), "the letter")
        assert letter.message.headers["task"] == "no_such_task"
        wait_until(lambda: settling()["ok"], "the worker to be ready")
        assert "settle_thread_ended" in site.text()
        assert worker.poll() is None


@pytest.mark.parametrize(("pool", "how"), [("prefork", "full"), ("threads", "pipe")])
def test_a_worker_that_cannot_log_goes_on_and_says_so_to_probes(faulty, pool, how):
    site, port = faulty("redis"), free_port()
    with site.worker(pool=pool, ROAD_LOG=how, ANGZARR_HEALTH__PORT=str(port)) as worker:
        publish(site, range(EVENTS), fate="give up")
        publish(site, range(EVENTS, 2 * EVENTS))
        wait_until(lambda: len(handled(site)) == EVENTS, "all events handled")
        assert len(ours(site, EVENTS)) == EVENTS
        assert worker.poll() is None
        told = json.loads(asked(port, "readyz"))["conditions"]["log"]
        lost = [line for line in asked(port, "metrics").splitlines() if "log_lines" in line]
    assert told["ok"], "it goes on"
    assert "lines could not be written" in told["says"]
    assert float(lost[-1].split()[-1]) > EVENTS, lost


@pytest.mark.parametrize("broker", ["redis", "amqp"])
def test_too_many_open_files_end_no_worker(cable, make_site, redis_url, amqp_url, broker):
    proxy, url = cable(redis_url if broker == "redis" else amqp_url)
    site = make_site(broker=url, make=Faulty)
    with site.worker(pool="threads") as worker:
        publish(site, range(3))
        wait_until(lambda: len(handled(site)) == 3, "the first events handled")
        limits = resource.prlimit(worker.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(worker.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
        proxy.cut()
        proxy.mend()
        wait_until(lambda: "Too many open files" in site.text(), "it to want files")
        resource.prlimit(worker.pid, resource.RLIMIT_NOFILE, limits)
        publish(site, range(3, 6))
        wait_until(lambda: len(handled(site)) == 6, "the others handled")
        assert worker.poll() is None
    assert set(handled(site).values()) == {1}
