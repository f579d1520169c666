"""Escalations taken by a real worker: they arrive, signed and once, or end as a letter."""

from __future__ import annotations

import base64
import json
from contextlib import contextmanager

import pytest

from adapters.webhook_receiver import Receiver, answer, verify
from angzarr.dead_letters.letter import Reason
from angzarr.sagas.escalation import HANDLER, webhook_json
from escalations import an_escalation
from polling import wait_until
from system.analysts import analysts
from tcp_proxy import unused_port

SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()


@contextmanager
def receiver(*fates, port=0):
    made = Receiver(*fates, port=port)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def make_escalating(make_site, redis_url, unique_name, tmp_path):
    def make(url, *, attempts, domain=unique_name):
        quick = {"base": 0.2, "max_delay": 0.2, "max_attempts": attempts, "jitter": "none"}
        return make_site(
            broker=redis_url,
            ANGZARR_SAGA_FALLBACK_DOMAIN=domain,
            ANGZARR_SAGA_ESCALATION_WEBHOOK=url,
            ANGZARR_SAGA_COMPENSATION__ESCALATION_WEBHOOK_SECRETS=json.dumps([SECRET]),
            ANGZARR_RETRY__POLICIES=json.dumps({"webhook": quick}),
            # What is tried so often, so soon, would otherwise wait for a minute.
            ANGZARR_FLOW__BREAKERS='{"saga-escalation": {"failures_in_a_row": 1000}}',
            ANGZARR_FLOW__BUDGETS='{"saga-escalation": {"enabled": false}}',
            ANGZARR_LEDGER=f"sqlite:///{tmp_path}/ledger.db",
            ANGZARR_ANALYSIS__FIRST_DELAY="0",
            NO_PROXY="127.0.0.1",
        )

    return make


def test_an_escalation_outlives_a_webhook_that_is_down_and_arrives_signed_and_once(make_escalating):
    port = unused_port()
    site = make_escalating(f"http://127.0.0.1:{port}/hook?token=s3cret", attempts=1000)
    with site.worker(pool="solo"):
        site.app.escalate(an_escalation())
        wait_until(lambda: "NO_ANSWER" in site.text(), "a try in vain")
        with receiver(port=port) as hook:
            wait_until(lambda: hook.requests, "the escalation to arrive")
            site.app.escalate(an_escalation())  # whoever crashed does it again
            site.app.publish(site.module.Thing(n=1))  # waits behind it, there is one worker
            site.wait_ran("handled")
            assert "event_already_processed_skipping" in site.text()
            (request,) = hook.requests
    assert request.said == webhook_json(an_escalation())
    assert request.headers["webhook-id"] == "esc-1"
    assert verify(request, SECRET)
    assert "s3cret" not in site.text()


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_webhook_that_is_gone_makes_a_letter_at_once(make_escalating, unique_name, pool):
    with receiver(answer(410)) as hook:
        site = make_escalating(hook.url, attempts=1000)
        with site.worker(pool=pool):
            site.app.escalate(an_escalation())
            (letter,) = site.letters(unique_name)
        assert len(hook.requests) == 1
    assert (letter.handler, letter.reason, letter.attempts) == (HANDLER, Reason.REFUSED, 1)
    assert (letter.error_code, letter.category) == ("HTTP_410", "client")
    assert "did not take it: it answered 410" in letter.explanation
    assert "s3cret" not in f"{letter} {site.text()}"


def test_a_receiver_that_asks_for_a_pause_is_not_asked_again_before(make_escalating):
    with receiver(answer(503, "Retry-After: 3"), answer(200)) as hook:
        site = make_escalating(hook.url, attempts=1000)
        with site.worker(pool="solo"):
            site.app.escalate(an_escalation())
            wait_until(lambda: len(hook.requests) == 2, "the second try")
        first, second = (int(one.headers["webhook-timestamp"]) for one in hook.requests)
    assert second - first >= 2  # the policy alone would have waited for 0.2 s


def test_an_escalation_that_used_up_its_attempts_is_replayed_like_any_letter(make_escalating):
    with receiver(answer(500), answer(500), answer(200)) as hook:
        site = make_escalating(hook.url, attempts=2, domain="thing")
        site.forget_letters("thing")
        with site.worker(pool="solo"), analysts(site) as start:
            site.app.escalate(an_escalation())
            wait_until(lambda: len(hook.requests) == 2, "both attempts")
            start()
            wait_until(lambda: len(hook.requests) == 3, "the replay")
        first, _, third = hook.requests
    assert first.body == third.body
    assert first.headers["webhook-id"] == third.headers["webhook-id"]
