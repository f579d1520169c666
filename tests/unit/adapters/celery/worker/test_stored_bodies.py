"""What a body from the payload store, or one that was opened, tells of its task."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from tests.unit.adapters.celery.publish.test_sealed_bodies import KEYS

from angzarr.adapters.celery.publish.body_offloader import BodyOffloader
from angzarr.adapters.celery.publish.sealed_sends import FOLLOWING
from angzarr.adapters.celery.worker.stored_bodies import tell_request
from angzarr.adapters.cryptography.xaes import XaesCipher
from angzarr.delivery.bodies import OpenedBody
from angzarr.errors import DecodeError
from angzarr.events.event import Message
from angzarr.payloads.body_sealer import BodySealer
from angzarr.payloads.claim_check import HEADER, check_in, write_check
from memory_payloads import MemoryPayloadStore

NONE = dict.fromkeys(("callbacks", "errbacks", "chain", "chord"))
STEP = {"task": "next"}
SEALER = BodySealer(keys=KEYS, cipher=XaesCipher())


def delivery_of(embed, *, sealer=SEALER):
    """A delivery of a large body with *embed*."""
    body = json.dumps([["x" * 500], {}, embed]).encode()
    message = Message(
        body=body, content_type="application/json", content_encoding="utf-8", queue="q",
        headers={"task": "t", "id": "e1"}, exchange="", routing_key="q",
    )  # fmt: skip
    sent = BodyOffloader(MemoryPayloadStore(), 100, sealer=sealer).prepared(message, None)
    return SimpleNamespace(message=sent)


@pytest.fixture(params=["in a batch", "alone"])
def tells(request):
    """Tell what was opened, where a request is at hand and where none is."""

    def tell(delivery, embed):
        shown = json.loads(delivery.message.body)[2]
        own = SimpleNamespace(args=[], kwargs={}, **shown)
        token = FOLLOWING.set(own if request.param == "alone" else None)
        try:
            tell_request(delivery, OpenedBody(["x"], {}, embed))
        finally:
            FOLLOWING.reset(token)

    return tell


@pytest.mark.parametrize("name", NONE)
@pytest.mark.parametrize("sealer", [SEALER, None], ids=["sealed", "plain"])
def test_followers_that_a_forged_header_denies_are_refused(tells, name, sealer):
    """By that header was chosen how it runs: they would not be sent, and nothing would say so."""
    embed = {**NONE, name: [STEP]}
    message = delivery_of(embed, sealer=sealer).message
    check = replace(check_in(message.headers), follows=False)
    headers = {**message.headers, HEADER: write_check(check)}
    forged = replace(message, headers=headers, body=json.dumps([[], {}, NONE]).encode())
    with pytest.raises(DecodeError, match=f"its body has {name}, and its header {HEADER}"):
        tells(SimpleNamespace(message=forged), embed)


def test_followers_that_the_message_shows_are_none_that_it_denies(tells):
    embed = {**NONE, "errbacks": [STEP]}
    tells(delivery_of(embed, sealer=None), embed)


def test_followers_that_the_message_announces_are_none_that_it_denies(tells):
    embed = {**NONE, "errbacks": [STEP]}
    tells(delivery_of(embed), embed)


@pytest.mark.parametrize("embed", [None, {}, NONE])
def test_a_body_that_nothing_follows_is_told(tells, embed):
    tells(delivery_of(embed), embed)


def test_the_request_learns_what_its_body_says():
    request = SimpleNamespace(args=[], kwargs={}, **NONE)
    token = FOLLOWING.set(request)
    try:
        embed = {**NONE, "chain": [STEP]}
        tell_request(delivery_of(embed), OpenedBody(["x"], {"y": 1}, embed))
    finally:
        FOLLOWING.reset(token)
    assert (request.args, request.kwargs, request.chain) == (["x"], {"y": 1}, [STEP])
