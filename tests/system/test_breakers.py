"""Breakers of a fleet over real brokers: an outage costs few calls, no attempt and no event."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections import defaultdict
from contextlib import ExitStack

import pytest

import warm_process
from endurance import soak
from polling import wait_until
from system.conftest import HERE, PATH

EVENTS = 40
#: Calls below which nothing is judged.
MIN_CALLS = 10
SETTINGS = {
    "open_for": 1.0,
    "ramp_up": 0.5,
    "successes_to_close": 1,
    "probe_lease": 2.0,
    "min_calls": MIN_CALLS,
}


def told(**more):
    """Return the environment that sets up the breaker of the dependency."""
    return {"ANGZARR_FLOW__BREAKERS": json.dumps({"dep": SETTINGS | more}), "ROAD_ASYNC": "0"}


def fleet(site, stack, number=2, pool="prefork", **environment):
    """Start workers of two slots each, side by side."""
    queues = f"{site.module.PREFIX},{site.module.PREFIX}-dep"
    had = site.text().count(" ready.")
    workers = [
        stack.enter_context(site.begun_worker("-Q", queues, pool=pool, **told() | environment))
        for _ in range(number)
    ]
    wait_until(lambda: site.text().count(" ready.") == had + number, "all to be ready")
    return workers


def publish(site, number=EVENTS, first=0):
    """Publish calls all at once: one that came long before others would use up its attempts."""
    site.app.publish_many([site.module.Call(n=first + n) for n in range(number)])


def beside(site, name):
    return site.journal.with_name(name)


def well(site):
    return {line["n"] for line in site.ran("call") if not line["ill"] and not line["mute"]}


def ill(site):
    return [line for line in site.ran("call") if line["ill"]]


def buried(site):
    """Return how many letters its workers wrote; their queue is other tests' too."""
    return site.text().count("event_sent_to_dlq")


def who_said(site, word):
    """Return the processes that said of the store that it is *word*."""
    return set(re.findall(rf"flow_store_{word}: .*\(pid (\d+)\)", site.text()))


def angzarr(site, *arguments):
    """Run the command as a person would."""
    environment = {**os.environ, **site.environment, **told(), "PYTHONPATH": PATH}
    command = ["angzarr", "-A", "road_app", *arguments]
    return warm_process.run(command, folder=HERE, environment=environment, check=True).stdout


@pytest.mark.parametrize(
    ("site", "pool"),
    [("redis", "prefork"), soak("redis", "threads"), ("amqp", "prefork"), ("sqs", "threads")],
    indirect=["site"],
)
def test_an_outage_costs_few_calls_no_attempt_and_no_event(site, pool):
    beside(site, "ill").touch()
    with ExitStack() as stack:
        fleet(site, stack, pool=pool)
        publish(site)
        wait_until(lambda: "half_open_failed" in site.text(), "a probe to find it ill")
        wait_until(lambda: site.text().count("half_open_failed") >= 3, "more probes")
        beside(site, "ill").unlink()
        probes = site.text().count("half_open_failed")
        wait_until(lambda: len(well(site)) == EVENTS, "all to be handled")
    # What opened it, what the other three slots had begun, and a probe each second.
    assert len(ill(site)) <= MIN_CALLS + 3 + probes + 1
    assert not buried(site)
    attempts = defaultdict(list)
    for line in site.ran("call"):
        attempts[line["n"]].append(line["attempt"])
    assert all(used == [*range(1, len(used) + 1)] for used in attempts.values()), (
        "only a call uses an attempt"
    )
    assert "circuit_breaker_closed: dep" in site.text()


@pytest.mark.parametrize(("pool", "number"), [("prefork", 2), ("gevent", 1)])
def test_a_queue_of_one_dependency_is_not_consumed_while_it_is_away(site, pool, number):
    beside(site, "ill").touch()
    with ExitStack() as stack:
        fleet(site, stack, number, pool=pool, **told(pause_queues=True, open_for=4.0))
        publish(site, 24)
        wait_until(lambda: site.text().count("consuming_stopped") >= number, "all to stop")
        site.module.add.delay(1, 1)
        site.wait_ran("add")
        beside(site, "ill").unlink()
        wait_until(lambda: site.text().count("consuming_resumed") >= number, "all to go on")
        wait_until(lambda: len(well(site)) == 24, "all to be handled")
    assert "breaker dep is open" in site.text()


def test_a_queue_is_not_consumed_while_the_probe_is_out(site):
    def turns():
        return [site.text().count(f"consuming_{verb}") for verb in ("stopped", "resumed")]

    beside(site, "ill").touch()
    with ExitStack() as stack:
        (only,) = fleet(site, stack, 1, **told(pause_queues=True, probe_lease=60.0))
        publish(site)
        wait_until(lambda: turns()[0], "the queue to be stopped")
        beside(site, "mute").touch()
        wait_until(lambda: [line for line in site.ran("call") if line["mute"]], "a probe")
        wait_until(lambda: turns()[0] == turns()[1] + 1, "the queue to be stopped meanwhile")
        os.killpg(only.pid, signal.SIGKILL)  # it would wait for the probe, which stays out
    assert len([line for line in site.ran("call") if line["mute"]]) == 1


def test_a_person_holds_a_breaker_open_and_closes_it(site):
    with ExitStack() as stack:
        fleet(site, stack)
        assert "is isolated" in angzarr(site, "breaker", "isolate", "dep")
        publish(site)
        wait_until(lambda: "breaker dep is open" in site.text(), "deliveries to be postponed")
        listed = json.loads(angzarr(site, "breaker", "list", "--json"))
        assert {row["name"]: row["state"] for row in listed}["dep"] == "isolated"
        assert not site.ran("call")
        assert "is closed" in angzarr(site, "breaker", "reset", "dep")
        wait_until(lambda: len(well(site)) == EVENTS, "all to be handled")
    shown = json.loads(angzarr(site, "breaker", "show", "dep", "--json"))
    assert [change["new_state"] for change in shown["transitions"]] == ["isolated", "closed"]
    assert all(change["by"] for change in shown["transitions"])


def test_without_its_store_calls_go_on_and_it_works_again_when_the_store_is_back(
    make_site, cable, redis_url
):
    proxy, flow_store = cable(redis_url)
    site = make_site(ANGZARR_FLOW__STORE=flow_store)
    with ExitStack() as stack:
        fleet(site, stack, ANGZARR_FLOW__STORE=flow_store)
        publish(site, 20)
        wait_until(lambda: len(well(site)) == 20, "the first to be handled")
        proxy.cut()
        beside(site, "ill").touch()
        site.app.publish(site.module.Call(n=20))
        wait_until(lambda: "flow_store_away" in site.text(), "the store to be missed")
        wait_until(lambda: buried(site) == 1, "the one to use its attempts")
        assert [line["attempt"] for line in ill(site)] == [1, 2, 3], "nothing held it back"
        proxy.mend()
        # A process that still lets all calls through would let events use up their attempts.
        wait_until(lambda: who_said(site, "back") >= who_said(site, "away"), "all to be back")
        publish(site, EVENTS, first=21)
        wait_until(lambda: "circuit_breaker_opened: dep" in site.text(), "it to open")
        beside(site, "ill").unlink()
        wait_until(lambda: len(well(site)) == 20 + EVENTS, "all to be handled")
    assert buried(site) == 1


def test_the_probe_of_a_killed_worker_is_let_go(site):
    beside(site, "ill").touch()
    with ExitStack() as stack:
        workers = fleet(site, stack, 1)
        publish(site, 20)
        wait_until(lambda: "circuit_breaker_opened" in site.text(), "it to open")
        beside(site, "mute").touch()
        wait_until(lambda: [line for line in site.ran("call") if line["mute"]], "a probe")
        os.killpg(workers[0].pid, signal.SIGKILL)
        beside(site, "mute").unlink()
        beside(site, "ill").unlink()
        began = time.time()
        fleet(site, stack, 1)
        wait_until(lambda: len(well(site)) == 20, "all to be handled")
    mute = [line for line in site.ran("call") if line["mute"] and line["at"] < began]
    assert len(mute) == 1, "one probe at a time"
