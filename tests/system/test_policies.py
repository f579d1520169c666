"""Policies in real workers: rules from the environment, deadlines, steps tried again in place."""

from __future__ import annotations

import json

import pytest

from polling import wait_until

RULES = json.dumps(
    [
        {"policy": "no_retry", "handler": "road_app.handle", "tenant": "acme"},
        {"policy": "quick", "tenant": "acme"},
    ]
)


def test_a_rule_of_the_settings_overrides_the_handlers_own_policy(make_site, redis_url):
    site = make_site(broker=redis_url, ANGZARR_RETRY__RULES=RULES)
    thing = site.module.Thing
    with site.worker():
        site.app.publish(thing(n=1, fate="flaky"), tenant_id="acme")
        site.app.publish(thing(n=2, fate="flaky"), tenant_id="globex")
        site.wait_ran("handled")
        (letter,) = site.letters("thing")
    assert (letter.event.data["n"], letter.reason, letter.attempts) == (1, "exhausted", 1)
    assert [line["attempt"] for line in site.ran("handled") if line["n"] == 2] == [3]


@pytest.mark.parametrize("site", ["redis", "amqp"], indirect=True)
def test_a_retry_beyond_the_deadline_is_a_letter_at_once(site):
    with site.worker():
        site.app.publish(site.module.Thing(n=1, fate="later", seconds=120), expires=60)
        letters = site.letters("thing")
    (letter,) = [one for one in letters if one.handler == "road_app.handle"]
    assert (letter.reason, letter.attempts) == ("out_of_time", 1)
    assert len(site.ran("handle")) == 1


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_step_is_tried_again_within_one_attempt(make_site, redis_url, pool):
    site = make_site(broker=redis_url)
    with site.worker(pool=pool):
        site.app.publish(site.module.Stepped(n=1, fails=2))
        (line,) = site.wait_ran("stepped")
    assert (line["attempt"], line["tries"]) == (1, 3)


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_worker_that_stops_leaves_a_step_to_the_next_attempt(make_site, redis_url, pool):
    site = make_site(broker=redis_url)
    with site.worker(pool=pool):
        site.app.publish(site.module.Stepped(n=1, fails=1, policy="webhook"))  # waits 5 s or more
        wait_until(lambda: "step_retried" in site.text(), "the step to wait")
    assert [line["attempt"] for line in site.ran("step")] == [1]
    with site.worker(pool=pool):
        (line,) = site.wait_ran("stepped")
    assert (line["attempt"], line["tries"]) == (2, 2)
