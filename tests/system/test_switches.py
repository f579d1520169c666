"""A fleet that a person pauses, resumes and lets drop, over a real Redis."""

from __future__ import annotations

import json
import os

import pytest

import warm_process
from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.facts.log import SqlFactLog
from polling import wait_until
from system.conftest import HERE, PATH

EVENTS = 20


@pytest.fixture
def facts(tmp_path):
    log = SqlFactLog(build_engine(f"sqlite:///{tmp_path / 'facts.db'}"))
    yield lambda subtype: log.read(subtype=subtype, limit=1000)
    log.close()


@pytest.fixture
def site(make_site, redis_url, tmp_path):
    return make_site(
        broker=redis_url,
        store=redis_url,
        ANGZARR_FACTS__URL=f"sqlite:///{tmp_path / 'facts.db'}",
    )


def flow(site, *arguments):
    """Run the command as a person does, in a process of its own; return what it told."""
    command = ["angzarr", "-A", "road_app", "flow", *arguments, "--json"]
    environment = {**os.environ, **site.environment, "PYTHONPATH": PATH}
    done = warm_process.run(command, folder=HERE, environment=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def honouring(site, switch):
    """Count the processes that said that they honour *switch*."""
    lines = site.text().splitlines()
    return sum("flow_switched" in line and switch["id"] in line for line in lines)


def handled(site):
    return {line["n"] for line in site.ran("handled")}


def test_what_is_paused_waits_and_is_handled_when_resumed_and_what_is_dropped_is_told(site, facts):
    prefix, module = site.module.PREFIX, site.module
    queues = ("-Q", f"{prefix},{prefix}-batch")
    with site.worker(*queues), site.worker(*queues, pool="threads"):
        paused = flow(site, "pause", "--handler", "road_app.take", "--reason", "the schema moves")
        slow = flow(site, "pause", "--tenant", "slow")
        wait_until(lambda: site.text().count("consuming_stopped") == 2, "the queue to be closed")
        wait_until(lambda: honouring(site, slow) == honouring(site, paused), "all to hear of it")
        for n in range(EVENTS):
            site.app.publish(module.Batch(n=n))
            site.app.publish(module.Thing(n=n), tenant_id="slow")
            site.app.publish(module.Thing(n=n + EVENTS), tenant_id="quick")
        others = set(range(EVENTS, 2 * EVENTS))
        wait_until(lambda: handled(site) >= others, "others to be handled meanwhile")
        wait_until(lambda: len(facts("postponed")) >= EVENTS, "the paused to be put back")
        assert handled(site) == others
        assert site.ran("take") == []
        assert paused["id"] in {switch.id for switch in site.app.ops.switch_controls().switches()}

        flow(site, "resume", "--all")
        wait_until(lambda: len(handled(site)) == 2 * EVENTS, "the paused to be handled")
        wait_until(lambda: len(site.ran("take")) == EVENTS, "the closed queue to be handled")

        drop = flow(site, "drop", "--tenant", "acme", "--reason", "left us", "--yes")
        wait_until(lambda: honouring(site, drop) >= honouring(site, slow), "all to hear of it")
        for n in range(100, 100 + EVENTS):
            site.app.publish(module.Thing(n=n), tenant_id="acme")
        wait_until(lambda: len(facts("skipped")) == EVENTS, "the dropped to be told")
    runs = site.ran("handled")
    assert len(runs) == 2 * EVENTS
    assert {line["attempt"] for line in runs} == {1}, "no attempt was used"
    assert {fact.tenant_id for fact in facts("skipped")} == {"acme"}
    assert all("left us" in fact.data["reason"] for fact in facts("skipped"))
    done = [fact.data["action"] for fact in facts("flow_switched")]
    assert done == ["pause", "pause", "resume", "resume", "drop"]
    assert [change.word for change in site.app.ops.switch_controls().history(10)] == done
