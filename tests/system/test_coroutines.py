"""`angzarr worker --coroutines`: async tasks side by side on one event loop."""

from __future__ import annotations

import os
import signal
import urllib.request
from collections import Counter

import pytest
from celery import chord

from polling import wait_until
from redis_servers import free_port
from system.test_angzarr_worker import SupervisedSite, lives

MANY = 200
OPTIONS = ("--processes", "1", "--coroutines", str(MANY))


class CoroutinesSite(SupervisedSite):
    name = "coroutines_app"

    def coroutines(self, *options: str, **environment: str):
        return self.supervisor(*OPTIONS, *options, ready=1, **environment)

    def open_gate(self) -> None:
        self.journal.with_name("gate").touch()


@pytest.fixture
def site(make_site, redis_url):
    return make_site(broker=redis_url, make=CoroutinesSite)


@pytest.fixture(params=["redis", "amqp"])
def any_site(make_site, redis_url, amqp_url, request):
    broker = {"redis": redis_url, "amqp": amqp_url}[request.param]
    return make_site(broker=broker, make=CoroutinesSite)


def once(lines) -> bool:
    return set(Counter(line["n"] for line in lines).values()) == {1}


def test_200_async_tasks_run_at_once_and_a_stop_is_clean(any_site):
    with any_site.coroutines() as process:
        for n in range(MANY):
            any_site.module.meet.delay(n, MANY)
        any_site.wait_ran("met", MANY)
        process.terminate()
        assert process.wait(60) == 0
    assert once(any_site.ran("met"))
    assert not any(map(lives, any_site.started().values()))
    assert "Traceback" not in any_site.text()


def test_a_kill_amid_200_repeats_those_that_had_not_ended_and_no_other(any_site):
    with any_site.coroutines():
        for n in range(50):
            any_site.module.mark.delay(n)
        any_site.wait_ran("mark", 50)
        for n in range(MANY):
            any_site.module.wait_for_gate.delay(n)
        # So many messages are prefetched at most: those before are acknowledged.
        any_site.wait_ran("wait", MANY)
        os.kill(any_site.started()[1], signal.SIGKILL)
        any_site.wait_ran("wait", 2 * MANY)
        any_site.open_gate()
        any_site.wait_ran("waited", MANY)
    assert once(any_site.ran("mark"))
    assert once(any_site.ran("waited"))
    assert {line["n"] for line in any_site.ran("waited")} == set(range(MANY))


def test_each_delivery_sees_itself_alone(any_site):
    with any_site.coroutines():
        for n in range(20):
            any_site.module.tell.delay(n, 20)
        told = any_site.wait_ran("told", 20)
    for line in told:
        assert line["seen"] == [[line["n"], line["n"], "coroutines_app.tell", line["n"]]] * 4


def test_sync_tasks_run_beside_them_on_as_many_threads_as_were_asked_for(site):
    with site.coroutines("--sync-threads", "3"):
        for n in range(3):
            site.module.meet_in_threads.delay(n, 3)
        met = site.wait_ran("met", 3)
        site.module.mark.delay(1)
        site.wait_ran("mark")
    assert len({line["thread"] for line in met}) == 3


def test_an_async_handler_takes_batches_beside_the_loop(site):
    with site.coroutines():
        for n in range(10):
            site.app.publish(site.module.Thing(n=n))
        site.wait_ran("gathered", 2)
        site.module.mark.delay(1)
        site.wait_ran("mark")
    assert sorted(n for line in site.ran("gathered") for n in line["numbers"]) == list(range(10))


def test_a_soft_limit_is_raised_in_the_coroutine_alone(site):
    with site.coroutines():
        site.module.wait_for_gate.delay(1)
        site.module.wait_softly.delay(2)
        site.wait_ran("soft")
        site.open_gate()
        site.wait_ran("waited")
    assert once(site.ran("wait"))


@pytest.mark.parametrize(("task", "first", "last"), [
    ("hang", "cancelled", "hung"), ("ignore", "ignored", "ended"),
])  # fmt: skip
def test_a_hard_limit_ends_its_coroutine_and_no_other(any_site, task, first, last):
    with any_site.coroutines():
        any_site.module.wait_for_gate.delay(1)
        any_site.wait_ran("wait")
        getattr(any_site.module, task).delay(2)
        any_site.wait_ran(first)
        any_site.wait_ran(last)
        if task == "ignore":
            any_site.said("coroutine_abandoned: coroutines_app.ignore, event ")
        any_site.open_gate()
        any_site.wait_ran("waited")
    assert "delivery_broke" not in any_site.text()
    assert "given_back" not in any_site.text()
    assert len({line["pid"] for line in any_site.ran(task)}) == 1
    assert len(any_site.ran(task)) == 2
    assert once(any_site.ran("wait"))


def test_a_blocked_loop_ends_with_its_process_at_the_hard_limit(site):
    with site.coroutines():
        site.module.block.delay(1)
        site.wait_ran("blocked")
    first, second = site.ran("block")
    assert first["pid"] != second["pid"]


def test_who_blocks_the_loop_is_named_once_with_the_line(site):
    with site.coroutines(ANGZARR_HEALTH__LOOP_BLOCKED_AFTER="0.2"):
        event = site.module.block_briefly.delay(1).id
        site.wait_ran("blocking")
        site.said(f"loop_blocked: coroutines_app.block_briefly, event {event},")
        site.open_gate()
        site.wait_ran("unblocked")
        site.module.mark.delay(2)
        site.wait_ran("mark")
    (line,) = [line for line in site.text().splitlines() if "loop_blocked" in line]
    assert "coroutines_app.py:" in line
    assert "in block_briefly" in line


def test_a_process_whose_loop_ended_is_replaced_and_its_events_run_again(any_site):
    with any_site.coroutines():
        any_site.module.wait_for_gate.delay(1)
        any_site.wait_ran("wait")
        any_site.module.end_the_loop.delay(2)
        any_site.wait_ran("loop ended")
        any_site.open_gate()
        any_site.wait_ran("waited")
    assert once(any_site.ran("waited"))
    assert len({line["pid"] for line in any_site.ran("wait")}) == 2


def test_what_runs_may_end_within_the_grace_and_the_rest_goes_back(site):
    with site.coroutines(ROAD_GRACE="300") as process:
        for n in range(MANY + 20):
            site.module.wait_for_gate.delay(n)
        site.wait_ran("wait", MANY)
        process.terminate()
        site.said("worker: Warm shutdown")
        site.open_gate()
        assert process.wait(60) == 0
    assert once(site.ran("waited"))
    assert len(site.ran("waited")) == MANY
    with site.coroutines():
        site.wait_ran("waited", MANY + 20)
    assert once(site.ran("waited"))


def test_a_grace_that_ends_cancels_what_runs_and_it_runs_again(site):
    with site.coroutines(ROAD_GRACE="0") as process:
        site.module.wait_for_gate.delay(1)
        site.wait_ran("wait")
        process.terminate()
        assert process.wait(60) == 0
    assert not site.ran("waited")
    site.open_gate()
    with site.coroutines():
        site.wait_ran("waited")
    assert once(site.ran("waited"))


def test_a_worker_whose_loop_is_blocked_ends_with_its_grace_and_the_event_runs_again(site):
    with site.coroutines(ROAD_GRACE="0") as process:
        site.module.block_briefly.delay(1)
        site.wait_ran("blocking")
        process.terminate()
        process.wait(60)
    assert not site.ran("unblocked")
    site.open_gate()
    with site.coroutines():
        site.wait_ran("unblocked")
    assert once(site.ran("unblocked"))


def test_a_duplicate_beside_its_event_does_not_run(site):
    with site.coroutines():
        for _ in range(2):
            site.module.wait_for_gate.apply_async((1,), task_id="the same")
        site.wait_ran("wait")
        site.said("in progress")
        site.open_gate()
        site.said('"duplicate"')
    assert once(site.ran("wait"))


def test_a_claim_store_that_is_away_costs_time_and_no_event(make_site, redis_url, cable):
    proxy, store = cable(redis_url)
    site = make_site(store=store, make=CoroutinesSite)
    with site.coroutines():
        for n in range(20):
            site.module.wait_for_gate.delay(n)
        site.wait_ran("wait", 20)
        proxy.cut()
        site.open_gate()
        site.wait_ran("waited", 20)
        proxy.mend()
        site.module.mark.delay(1)
        site.wait_ran("mark")
    wait_until(lambda: once(site.ran("waited")), "each to have run once")


@pytest.mark.parametrize("kind", ["redis", "amqp"])
def test_a_broker_that_is_cut_off_amid_them_repeats_none(
    make_site, redis_url, amqp_url, cable, kind
):
    proxy, broker = cable({"redis": redis_url, "amqp": amqp_url}[kind])
    site = make_site(broker=broker, make=CoroutinesSite)
    with site.coroutines():
        for n in range(50):
            site.module.wait_for_gate.delay(n)
        site.wait_ran("wait", 50)
        proxy.cut()
        site.open_gate()
        site.wait_ran("waited", 50)
        proxy.mend()
        for n in range(50, 100):
            site.module.wait_for_gate.delay(n)
        site.wait_ran("waited", 100)
    assert once(site.ran("waited"))


def test_results_links_and_chords_go_on_from_a_loop(make_site, redis_url):
    site = make_site(
        broker=redis_url, make=CoroutinesSite, ROAD_BACKEND=redis_url, ROAD_GRACE="300"
    )
    marks, add_up = site.module.mark, site.module.add_up
    with site.coroutines():
        summed = chord([marks.s(n) for n in range(20)])(add_up.s())
        assert summed.get(timeout=120) == sum(range(20))
        assert marks.si(41).apply_async(link=marks.si(42)).get(timeout=120) == 41
        site.wait_ran("mark", 22)
    assert {line["n"] for line in site.ran("mark")} >= {41, 42}
    assert once(site.ran("mark"))
    (added,) = site.ran("added")
    assert added["parent"] is not None


def test_a_process_is_replaced_after_as_many_tasks_as_it_may_run(site):
    with site.coroutines("--max-tasks-per-child", "4"):
        for n in range(12):
            site.module.mark.delay(n)
        site.wait_ran("mark", 12)
        site.said("draining: it has run as many tasks as it may")
    assert once(site.ran("mark"))


def test_what_coroutines_publish_side_by_side_arrives_in_their_flow(any_site):
    with any_site.coroutines():
        for n in range(100):
            any_site.module.publish_another.delay(n)
        taken = any_site.wait_ran("taken", 100)
        published = any_site.wait_ran("published", 100)
    assert once(taken)
    assert once(published)
    assert all(line["is_its_cause"] for line in published)


def test_a_coroutine_that_is_revoked_amid_its_run_is_cancelled_and_a_letter(any_site):
    with any_site.coroutines():
        for n in range(3):
            any_site.module.wait_for_gate.delay(n)
        sent = any_site.module.clean_up.delay(7)
        any_site.wait_ran("wait", 3)
        any_site.wait_ran("begun")
        any_site.app.control.revoke(sent.id, terminate=True)
        any_site.wait_ran("cleaned up")
        (letter,) = any_site.letters("unknown")
        any_site.open_gate()
        any_site.wait_ran("waited", 3)
    assert (letter.reason, letter.message.id) == ("revoked", sent.id)
    assert once(any_site.ran("begun"))
    assert once(any_site.ran("waited"))
    assert "given_back" not in any_site.text()


def test_one_that_waits_for_its_turn_is_revoked_without_a_run(site):
    with site.coroutines("--coroutines", "1"):
        site.module.wait_for_gate.delay(1)
        site.wait_ran("wait")
        sent = site.module.mark.delay(2)
        wait_until(
            lambda: sent.id in str(site.app.control.inspect(limit=1).reserved()), "it to be in line"
        )
        site.app.control.revoke(sent.id, terminate=True)
        (letter,) = site.letters("unknown")
        site.open_gate()
        site.module.mark.delay(3)
        site.wait_ran("mark")
    assert (letter.reason, letter.message.id) == ("revoked", sent.id)
    assert [line["n"] for line in site.ran("mark")] == [3]


def test_a_blocked_loop_is_counted_by_the_metrics_of_the_worker(site):
    port = free_port()

    def measured(name: str) -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        return next((float(one.split()[1]) for one in lines if one.startswith(f"{name} ")), -1.0)

    with site.coroutines(ANGZARR_HEALTH__PORT=str(port), ANGZARR_HEALTH__LOOP_BLOCKED_AFTER="0.2"):
        wait_until(lambda: measured("loop_blocked_total") == 0.0, "a count to begin with")
        site.module.block_briefly.delay(1)
        wait_until(lambda: measured("loop_blocked_total") == 1.0, "it to be counted")
        assert measured("loop_blocked_longest_seconds") >= 0.2
        site.open_gate()
        site.wait_ran("unblocked")


def test_a_process_whose_loop_stands_still_for_long_is_replaced_and_its_events_run_again(site):
    with site.coroutines(ROAD_STALLED="2", ROAD_GRACE="0"):
        site.module.wait_for_gate.delay(1)
        site.wait_ran("wait")
        site.module.block_for_good.delay(2)
        site.said("it stands still")
        site.wait_ran("unblocked")
        site.open_gate()
        site.wait_ran("waited")
    assert len({line["pid"] for line in site.ran("blocking for good")}) == 2
    assert once(site.ran("waited"))
