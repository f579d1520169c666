"""Which bodies are named again by a message that is sent again, and which are put anew."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.unit.adapters.celery.publish.test_sealed_bodies import CANARY, KEYS, opened, publish

from angzarr.adapters.celery.publish import put_bodies
from angzarr.adapters.celery.publish.body_offloader import BodyOffloader
from angzarr.adapters.cryptography.xaes import XaesCipher
from angzarr.adapters.memory.payload_holders import MemoryPayloadHolders
from angzarr.errors import PayloadStoreUnavailable, StoreUnavailable
from angzarr.payloads.body_sealer import BodySealer
from angzarr.payloads.claim_check import check_in
from angzarr.payloads.collector import PayloadState
from angzarr.payloads.holders import BodyRegistration
from angzarr.payloads.store import new_name
from memory_payloads import MemoryPayloadStore

LARGE = CANARY * 100
SEALER = BodySealer(keys=KEYS, cipher=XaesCipher())


class Site:
    """A publisher that encrypts what it stores, its store, and who holds what there."""

    def __init__(self, sealer=SEALER):
        self.now = 0.0
        self.store, self.holders = MemoryPayloadStore(), MemoryPayloadHolders()
        self.offloader = self.made(BodyRegistration(lambda: self.holders), sealer)

    def made(self, registration, sealer=SEALER):
        return BodyOffloader(
            self.store, 100, registration, sealer=sealer, monotonic=lambda: self.now
        )

    def sends(self, event_id, seconds=10.0, offloader=None, data=LARGE):
        """The URI of the body that the message of *event_id* names, *seconds* later."""
        self.now += seconds
        sent = publish(offloader or self.offloader, data, headers={"id": event_id})
        if check_in(sent.headers).key:
            assert opened(SEALER, sent, self.store, event_id)[0] == [data]
        return check_in(sent.headers).reference.uri

    def held(self):
        found = self.holders.find(PayloadState.HELD, timedelta(0), limit=9999)
        return {one.uri for one in found}


@pytest.fixture
def site():
    return Site()


def test_a_message_that_is_sent_again_names_the_body_that_was_put_for_it(site):
    """Its broker was away for minutes, and others were sent meanwhile."""
    first = site.sends("e1")
    others = {site.sends(f"other-{number}") for number in range(20)}
    assert {site.sends("e1", 60.0) for _ in range(6)} == {first}
    assert site.held() == {first, *others}
    assert len(site.store.payloads) == 21


def test_another_body_of_one_event_is_another(site):
    first = site.sends("e1")
    other = site.sends("e1", data=f"{LARGE} again")
    assert {site.sends("e1"), site.sends("e1", data=f"{LARGE} again")} == {first, other}
    assert site.held() == {first, other}


def test_a_body_that_was_condemned_meanwhile_is_sealed_and_put_again(site):
    first = site.sends("e1")
    site.holders.condemn([first], PayloadState.HELD, timedelta(0))
    site.store.delete(first)
    assert site.sends("e1") != first


def test_without_a_register_a_message_names_its_body_again_for_an_hour(site):
    """What deletes old bodies counts from when they were put."""
    kept = site.made(None)
    first = site.sends("e1", offloader=kept)
    assert site.sends("e1", 3599.0, kept) == first
    assert site.sends("e1", 2.0, kept) != first


def test_a_plain_body_is_put_anew_which_makes_it_young_again():
    site = Site(sealer=None)
    first = site.sends("e1")
    put_at = dict(site.store._put_at)
    site.store._put_at.clear()
    assert (site.sends("e1", 0.0), site.store._put_at) == (first, {})
    assert (site.sends("e1", 6.0), set(site.store._put_at)) == (first, set(put_at))


def test_so_many_are_known_and_the_one_that_was_asked_for_last_stays(site, monkeypatch):
    monkeypatch.setattr(put_bodies, "_MOST", 2)
    first, second = site.sends("e1"), site.sends("e2")
    assert site.sends("e1") == first
    site.sends("e3")
    assert site.sends("e1") == first
    assert site.sends("e2") != second


@pytest.mark.parametrize("register", ["here", "away"])
def test_a_body_that_could_not_be_put_is_held_by_none(site, register, caplog):
    """If it was put for all that, it is deleted as any other that nothing holds."""
    put = site.store.put

    def refuse(body, name):
        new_name(body, site.store.root, name, "the store")
        if register == "away":
            site.holders.release = lose
        raise PayloadStoreUnavailable("the payload store is away")

    def lose(_holds):
        raise StoreUnavailable("redis is away")

    site.store.put = refuse
    for _ in range(3):
        with pytest.raises(PayloadStoreUnavailable):
            site.sends("e1")
    site.store.put = put
    last = site.sends("e1")
    if register == "here":
        assert site.held() == {last}
        assert caplog.messages == []
    else:
        assert last in site.held()
        assert [one.split(":")[0] for one in caplog.messages] == ["payload_not_registered"]
