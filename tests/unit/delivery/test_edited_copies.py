"""A retry with other arguments: its copy is stored and encrypted before anything is sent."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.adapters.celery.publish.body_offloader import BodyOffloader
from angzarr.adapters.cryptography.xaes import XaesCipher
from angzarr.delivery.delivery import DeadLettered, Handled, Retried
from angzarr.delivery.sealed_origin import SealedOrigin, origin_in
from angzarr.errors import DeliveryError, PayloadStoreUnavailable, RetryLater
from angzarr.events import headers as names
from angzarr.payloads.body_sealer import SEALED, BodyKeys, BodySealer
from angzarr.payloads.claim_check import HEADER, check_in
from angzarr.payloads.collector import PayloadState
from angzarr.payloads.holders import BodyRegistration
from angzarr.payloads.store import SEALED_ENCODING, new_name
from memory_payloads import MemoryPayloadStore

CANARY = "the canary sings"
LARGE = CANARY * 100
SEALER = BodySealer(
    keys=BodyKeys(keys={"k1": b"1" * 32, "a1": b"a" * 32}, current="k1", tenants={"acme": "a1"}),
    cipher=XaesCipher(),
)


def body_of(data):
    return json.dumps([[data], {}, {}]).encode()


class Site:
    """A worker that encrypts nothing itself, and a publisher that encrypts all."""

    def __init__(self, world):
        self.world = world
        self.holders = world.store.holders
        world.sealer, world.payloads = SEALER, MemoryPayloadStore()
        self.registration = BodyRegistration(lambda: self.holders)
        world.offloader = self.offloader(seals_stored=False)

    def offloader(self, **options):
        return BodyOffloader(
            self.world.payloads, 1000, self.registration, sealer=SEALER, monotonic=lambda: 0.0,
            **options,
        )  # fmt: skip

    def sealed(self, data=CANARY, **headers):
        plain = self.world.message(data, argsrepr=f"[{data!r}]", **headers)
        return self.offloader(seals_all=True).sealed(plain)

    def plain(self, data):
        return self.offloader(seals_stored=False).prepared(self.world.message(data), None)

    def retries_with(self, data):
        """Let the handler ask once for other arguments; return what it is given."""
        seen = []

        def call(given, _context):
            seen.append(given)
            if len(seen) == 1:
                raise RetryLater(timedelta(seconds=5), body=body_of(data))

        self.world.handler(call)
        return seen

    def held(self):
        return self.holders.count()[PayloadState.HELD].bodies


@pytest.fixture
def site(world):
    return Site(world)


@pytest.mark.parametrize("data", [CANARY, LARGE], ids=["inline", "stored"])
@pytest.mark.parametrize("edited", [f"{CANARY} again", f"{LARGE} again"], ids=["inline", "stored"])
def test_it_is_encrypted_though_its_worker_encrypts_nothing(site, data, edited):
    world = site.world
    seen = site.retries_with(edited)
    assert isinstance(world.take(site.sealed(data)), Retried)
    copy = world.last_copy()
    assert CANARY not in repr((copy, world.payloads.payloads))
    assert copy.headers["argsrepr"] == SEALED
    check = check_in(copy.headers)
    assert (check.key, check.is_inline) == ("k1", len(edited) < 1000)
    assert site.held() == (not check.is_inline), "the old body is let go"
    assert isinstance(world.take(copy), Handled)
    assert seen == [data, edited]
    assert site.held() == 0


def test_it_has_the_key_of_its_tenant(site):
    site.retries_with("other")
    site.world.take(site.sealed(**{names.TENANT_ID: "acme"}))
    assert check_in(site.world.last_copy().headers).key == "a1"


def test_a_key_that_only_its_publisher_knows_as_a_tenants_stays(site):
    """Else the tenant could not be forgotten."""
    site.retries_with("other")
    message = site.offloader().prepared(site.world.message(CANARY), SealedOrigin("a1"))
    site.world.take(message)
    assert check_in(site.world.last_copy().headers).key == "a1"


@pytest.mark.parametrize("data", [CANARY, LARGE], ids=["inline", "stored"])
def test_no_copy_has_a_key_that_a_forged_header_names(site, data):
    seen = site.retries_with("other")
    message = site.sealed(data, **{names.TENANT_ID: "acme"})
    forged = message.headers[HEADER].replace('"key": "a1"', '"key": "k1"')
    assert forged != message.headers[HEADER]
    outcome = site.world.take(replace(message, headers={**message.headers, HEADER: forged}))
    assert isinstance(outcome, DeadLettered)
    assert "key 'a1', and its message names the key 'k1'" in outcome.letter.error_message
    assert (seen, site.world.journal.copies) == ([], [])


@pytest.mark.parametrize(
    ("data", "edited", "left"),
    [
        (LARGE, f"{LARGE} again", 1),
        (LARGE, LARGE, 1),
        (LARGE, "small", 0),
        ("small", LARGE, 1),
        ("small", "other", 0),
    ],
)
def test_a_plain_one_holds_the_body_that_it_needs_and_no_other(site, data, edited, left):
    seen = site.retries_with(edited)
    site.world.take(site.plain(data))
    copy = site.world.last_copy()
    assert site.held() == left
    assert (HEADER in copy.headers) == bool(left)
    site.world.take(copy)
    assert seen == [data, edited]
    assert site.held() == 0


def test_a_broker_that_is_away_costs_no_further_body(site):
    """Each encryption has other bytes, and so another name in the store."""
    site.retries_with(f"{LARGE} again")
    site.world.journal.broker_away.times = 3
    assert isinstance(site.world.take(site.sealed(LARGE)), Retried)
    assert len(site.world.payloads.payloads) == 2
    assert site.held() == 1


def test_a_store_that_is_away_is_waited_for_and_nothing_is_sent_plain(site, monkeypatch):
    message = site.sealed(LARGE)
    site.retries_with(f"{LARGE} again")
    put, tries = site.world.payloads.put, []

    def away(*given):
        tries.append(given)
        if len(tries) < 3:
            raise PayloadStoreUnavailable("the payload store is away")
        return put(*given)

    monkeypatch.setattr(site.world.payloads, "put", away)
    assert isinstance(site.world.take(message), Retried)
    assert len(tries) == 3
    assert CANARY not in repr(site.world.last_copy())


@pytest.mark.parametrize("message", ["sealed", "plain"])
def test_a_try_that_the_store_refused_leaves_no_hold(site, monkeypatch, message):
    """Its body is registered before it is put, and has other bytes than that of the next try."""
    message = getattr(site, message)(LARGE)
    site.retries_with(f"{LARGE} again")
    put, tries = site.world.payloads.put, []

    def away(body, name):
        tries.append(new_name(body, site.world.payloads.root, name, "the store"))
        if len(tries) < 9:
            raise PayloadStoreUnavailable("the payload store is away")
        return put(body, name)

    monkeypatch.setattr(site.world.payloads, "put", away)
    assert isinstance(site.world.take(message), Retried)
    assert len(tries) == 9
    assert site.held() == 1
    assert isinstance(site.world.take(site.world.last_copy()), Handled)
    assert site.held() == 0


@pytest.mark.parametrize("has_store", [True, False])
def test_what_cannot_be_encrypted_is_a_letter_with_the_message_as_it_came(site, has_store):
    offloader = BodyOffloader(site.world.payloads, 1000) if has_store else None
    site.world.offloader = offloader
    site.retries_with(f"{CANARY} again")
    message = site.sealed()
    outcome = site.world.take(message)
    assert isinstance(outcome, DeadLettered)
    letter = outcome.letter
    assert "its copy with other arguments cannot be encrypted" in letter.error_message
    assert "'k1'" in letter.error_message
    assert "payloads.encryption_keys" in letter.error_message
    assert (letter.message.body, letter.message.headers) == (message.body, message.headers)
    assert site.world.journal.copies == []


def test_a_body_that_no_one_can_encrypt_is_not_sent_either(site):
    message = site.sealed()

    def call(_given, _context):
        raise RetryLater(timedelta(seconds=5), body=b"{}")

    site.world.handler(call)
    outcome = site.world.take(message)
    assert isinstance(outcome, DeadLettered)
    assert "cannot be encrypted" in outcome.letter.error_message
    assert site.world.journal.copies == []


def test_a_settlement_publishes_no_copy_that_was_not_made(site):
    """A road that forgot to make it would send the old arguments."""
    road, delivery = site.world.road(), site.world.boarded()
    outcome = Retried(
        delay=timedelta(0), error=ValueError(), seen=None, max_attempts=2, body=body_of("other")
    )
    with pytest.raises(DeliveryError, match="was not made"):
        road.settler.settle(delivery, outcome)
    assert site.world.journal.copies == []


def test_a_copy_of_a_compressed_message_says_nothing_of_compression(site):
    site.retries_with("other")
    site.world.take(replace(site.sealed(), headers={**site.sealed().headers, "compression": "x"}))
    assert "compression" not in site.world.last_copy().headers


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(said=json_like, tenant=json_like)
def test_no_header_of_an_attacker_is_an_error(said, tenant):
    for text in (said, json.dumps(said)):
        assert origin_in({HEADER: text, names.TENANT_ID: tenant}) is None
    check = json.dumps({"size": 1, "digest": "0" * 64, "encoding": SEALED_ENCODING, "key": "k9"})
    found = origin_in({HEADER: check, names.TENANT_ID: tenant})
    assert found == ("k9", tenant if isinstance(tenant, str) else None)
    assert SEALER.keys.of_copy(found.key, tenant, found.tenant) in SEALER.keys.keys
