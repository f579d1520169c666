"""Handlers with an order, in real workers: the events of an aggregate one after another, whatever
broker they come by and whoever dies meanwhile.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from contextlib import ExitStack, closing, suppress
from datetime import timedelta
from pathlib import Path

import pytest

from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.facts.log import SqlFactLog
from angzarr.dead_letters.letter import Reason
from endurance import longer, soak
from polling import wait_until
from system.order_site import OrderSite, interleaved

#: Events of each aggregate.
EVENTS = 10
#: Kills of one test: a third of them of whole workers.
KILLS = longer(6, 12)
#: Aggregates of the tests in which workers die.
ROOTS = longer(15, 30)


@pytest.fixture
def site(request, tmp_path, monkeypatch, unique_name, postgresql_url):
    broker = getattr(request, "param", "redis")
    made = request.getfixturevalue(f"{broker}_site_environment")
    environment = {
        **made, "ANGZARR_PREFIX": unique_name, "ROAD_PREFIX": unique_name,
        "ANGZARR_ORDERING__URL": postgresql_url, "ORDER_LOOSE": "1",
        "ANGZARR_FACTS__URL": f"sqlite:///{tmp_path}/facts.db",
    }  # fmt: skip
    site = OrderSite(tmp_path, environment, monkeypatch, postgresql_url)
    yield site
    site.close()


@pytest.mark.longer
@pytest.mark.parametrize(
    ("site", "roots"),
    [("redis", longer(20, 40)), ("amqp", longer(20, 40)), ("sqs", longer(8, 12))],
    indirect=["site"],
)
def test_many_workers_keep_the_order_of_every_aggregate(site, roots):
    roots = [f"a{number}" for number in range(roots)]
    mixed = interleaved(roots, EVENTS, seed=7)
    with site.workers(3):
        site.publish(*(site.entry(root, n) for root, n in mixed))
        everything = {root: list(range(EVENTS)) for root in roots}
        site.wait_model(everything)
        wait_until(lambda: len(site.ran("listed")) >= EVENTS * len(roots), "all to be listed")
        wait_until(lambda: len(site.ran("loose")) >= EVENTS * len(roots), "all unordered ones")
        wait_until(site.nothing_waits, "the lanes to be empty")
    assert site.runs() == everything, "each once, in order, without a gap"
    site.wait_model(everything)


#: Deaths at each point, and aggregates one event of which fails for good at first.
DEATHS, FAILING = longer(2, 6), 8
POINTS = [
    "after the claim", "before the look", "after the look", "in the transaction",
    "after the commit", "after the move", "before it is forgotten", "after the park",
    "before the note",
]  # fmt: skip


@pytest.mark.longer
@pytest.mark.parametrize("site", ["redis", soak("amqp")], indirect=True)
def test_wherever_a_process_dies_every_event_has_its_effects_once_and_in_order(site):
    roots = [f"a{number}" for number in range(ROOTS)]
    failing = {f"f{number}": number % 4 + 1 for number in range(FAILING)}
    mixed = interleaved([*roots, *failing], EVENTS, seed=11)
    fates = dict.fromkeys(failing.items(), "give up")
    with site.workers(2, ORDER_POINTS=",".join(POINTS), ORDER_DEATHS=str(DEATHS), ORDER_HASTE="1"):
        site.publish(*(site.entry(root, n, fates.get((root, n), "fine")) for root, n in mixed))
        letters = {}
        # One for each of two handlers; a process that died before it noted one puts it again.
        while len(letters) < 2 * FAILING:
            for letter in site.letters(site.domain):
                letters[letter.id] = letter
        assert {letter.reason for letter in letters.values()} == {Reason.REFUSED}
        site.mend()
        for letter in letters.values():
            site.send_again(letter)
        everything = {root: list(range(EVENTS)) for root in (*roots, *failing)}
        site.wait_model(everything)
        site.wait_steps(everything)
        wait_until(site.nothing_waits, "the lanes to be empty")
        wait_told(site, everything)
    died = Counter(line["point"] for line in site.ran("dies"))
    assert died == dict.fromkeys(POINTS, DEATHS)


@pytest.mark.longer
@pytest.mark.parametrize("site", ["amqp", soak("redis")], indirect=True)
def test_kill_9_at_any_moment_costs_no_event_no_order_and_no_effect(site):
    chance = random.Random(3)
    roots = [f"a{number}" for number in range(ROOTS)]
    mixed = interleaved(roots, EVENTS, seed=13)
    everything = {root: list(range(EVENTS)) for root in roots}
    environment = {"ORDER_HASTE": "1", "ORDER_LEASE": "2"}
    with ExitStack() as stack:

        def begin():
            return stack.enter_context(site.begun_worker(**environment))

        workers = [begin() for _ in range(3)]
        wait_until(lambda: site.text().count(" ready.") >= 3, "all to be ready")
        for part in range(KILLS):
            size = len(mixed) // KILLS
            some = mixed[part * size :] if part == KILLS - 1 else mixed[part * size :][:size]
            had = len(site.ran("listed"))
            site.publish(*(site.entry(root, n) for root, n in some))
            wait_until(lambda had=had: len(site.ran("listed")) > had, "some to be run")
            time.sleep(chance.random() * 0.2)
            if part % 3 == 0:
                victim = workers.pop(0)
                os.killpg(victim.pid, signal.SIGKILL)
                victim.wait(60)
                workers.append(begin())
            else:
                kill_child(chance.choice(workers).pid)
        wait_until(lambda: not bring_back(site) and site.handled_all(everything), "all")
        site.wait_model(everything)
        site.wait_steps(everything)
        wait_until(site.nothing_waits, "the lanes to be empty")
        wait_told(site, everything)


def wait_told(site, expected):
    """Wait until a fact tells of each event that it was handled, by each handler, once."""
    handlers = (site.module.LISTED, site.totals)
    wanted = {
        (handler, site.entry(root, n).id): 1
        for handler in handlers for root, seen in expected.items() for n in seen
    }  # fmt: skip

    def told():
        facts = log.read(subtype="handled", limit=100_000)
        return Counter((one.tool_id, one.event_id) for one in facts if one.tool_id in handlers)

    engine = build_engine(site.environment["ANGZARR_FACTS__URL"])
    with closing(SqlFactLog(engine)) as log:
        with suppress(pytest.fail.Exception):
            wait_until(lambda: told() == wanted)
        found = told()
        assert {one: found[one] for one in wanted if found[one] != 1} == {}
        assert found == wanted
    engine.dispose()


def bring_back(site):
    """Replay what is a letter since it was at work at three kills; return how many that were."""
    with closing(site.app.ops.open_dead_letter_queue()) as queue:
        receipts = queue.receive([site.domain], limit=10, wait=timedelta(0))
        queue.done(receipts)
    for receipt in receipts:
        assert receipt.letter.reason is Reason.POISON
        site.send_again(receipt.letter)
    return len(receipts)


def kill_child(pid):
    """Kill a process of the pool of the worker *pid*, if it has one at this moment."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    with suppress(ProcessLookupError, IndexError):
        os.kill(int(children[0]), signal.SIGKILL)
