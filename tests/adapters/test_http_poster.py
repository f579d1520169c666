"""Escalations posted to a real receiver that plays every fate."""

from __future__ import annotations

import base64
import logging
import threading
from datetime import timedelta

import httpx
import pytest
from tests.adapters.webhook_receiver import Receiver, answer, reset, verify
from tests.escalations import an_escalation
from tests.hand_clock import HandClock
from tools.tcp_proxy import unused_port

from angzarr.adapters.http.poster import Poster
from angzarr.errors import WebhookError
from angzarr.sagas.escalation import deliver, webhook_json

SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def receive():
    made = []

    def make(*fates):
        made.append(Receiver(*fates))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def poster():
    made = []

    def make(url, **options):
        options.setdefault("clock", HandClock())
        made.append(Poster(url, keys=[b"k" * 32], **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def refusal(poster):
    with pytest.raises(WebhookError) as caught:
        deliver(an_escalation(), poster.post)
    assert "s3cret" not in str(caught.value)
    return caught.value


def test_an_escalation_arrives_signed_under_its_id(receive, poster):
    site = receive()
    deliver(an_escalation(), poster(site.url).post)
    (request,) = site.requests
    assert request.headers["webhook-id"] == "esc-1"
    assert request.headers["content-type"] == "application/json"
    assert request.said == webhook_json(an_escalation())
    assert verify(request, SECRET)


def test_what_is_sent_again_can_be_known_again(receive, poster):
    site = receive(answer(500), answer(202))
    one = poster(site.url)
    assert refusal(one).status == 500
    deliver(an_escalation(), one.post)
    first, second = site.requests
    assert first.body == second.body
    assert first.headers["webhook-id"] == second.headers["webhook-id"]


@pytest.mark.parametrize("code", [429, 503])
def test_a_receiver_that_asks_for_a_pause_gets_it(receive, poster, code):
    error = refusal(poster(receive(answer(code, "Retry-After: 120")).url))
    assert error.ill
    assert error.retry_after == timedelta(minutes=2)


def test_nobody_there_is_tried_again(poster):
    error = refusal(poster(f"http://127.0.0.1:{unused_port()}/x?token=s3cret"))
    assert (error.ill, error.status) == (True, None)
    assert "Connection refused" in str(error)


def test_a_connection_that_is_cut_is_tried_again(receive, poster):
    error = refusal(poster(receive(reset).url))
    assert (error.ill, error.status) == (True, None)


@pytest.mark.parametrize("fate", ["mute", "drip"])
def test_a_slow_receiver_is_given_up_within_the_bound(receive, poster, fate):
    site = receive()
    site.fates = [getattr(site, fate)]
    error = refusal(poster(site.url, whole=timedelta(seconds=0.2)))
    assert error.ill
    assert "no whole answer within 0.2 s" in str(error)


@pytest.mark.parametrize("code", [400, 401, 404, 409, 410])
def test_a_receiver_that_refuses_is_not_tried_again(receive, poster, code):
    error = refusal(poster(receive(answer(code)).url))
    assert (error.ill, error.status) == (False, code)
    assert f"it answered {code}" in str(error)


def test_a_redirect_is_a_refusal_and_is_not_followed(receive, poster):
    other = receive()
    error = refusal(poster(receive(answer(308, f"Location: {other.url}")).url))
    assert not error.ill
    assert "a redirect, which is not followed" in str(error)
    assert other.requests == []


def test_no_logger_writes_an_address_down_and_others_use_of_the_client_is_logged(
    receive, poster, caplog
):
    caplog.set_level(logging.DEBUG)
    elsewhere = receive()
    site = receive(answer(200), answer(302, f"Location: {elsewhere.url}"))
    one = poster(site.url)
    deliver(an_escalation(), one.post)
    refusal(one)
    assert "s3cret" not in caplog.text
    httpx.get(elsewhere.url)
    assert "s3cret" in caplog.text


def test_threads_may_post_at_once(receive, poster):
    site = receive()
    one = poster(site.url)
    got = {}

    def post(number):
        got[number] = one.post(f"m{number}", b"{}")

    threads = [threading.Thread(target=post, args=[number]) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(got[number].arrived for number in range(12))
    assert {r.headers["webhook-id"] for r in site.requests} == {f"m{n}" for n in range(12)}


def test_one_that_is_slow_is_cut_and_no_other(receive, poster):
    """The bound of one request closes its own connection, whatever others there are."""
    site = receive()
    site.fates = [site.mute, answer(200)]
    one = poster(site.url, whole=timedelta(seconds=3))
    slow = []
    thread = threading.Thread(target=lambda: slow.append(one.post("slow", b"{}")))
    thread.start()
    while not site.requests:
        thread.join(0.01)
    assert one.post("quick", b"{}").arrived
    thread.join()
    assert slow[0].problem == "no whole answer within 3 s"
