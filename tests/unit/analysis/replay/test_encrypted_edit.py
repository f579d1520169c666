"""Edits and replays of events whose body is encrypted: who sees what, and what is kept."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.contracts.ledger import letter_of
from tests.unit.analysis.replay.test_edit import Site

from angzarr.adapters.celery.publish.body_offloader import BodyOffloader
from angzarr.adapters.cryptography.xaes import XaesCipher
from angzarr.analysis.replay.compensation import Compensator
from angzarr.analysis.replay.editor import Draft
from angzarr.analysis.replay.job_view import EditReview
from angzarr.dead_letters.letter import Refusal
from angzarr.dead_letters.protection import Clearance
from angzarr.dead_letters.sealed_letters import SealedLetters, body_key, has_sealed_body
from angzarr.payloads.body_sealer import SEALED, BodyKeys, BodySealer
from angzarr.payloads.claim_check import HEADER, check_in
from angzarr.payloads.sealed_message import STORED_BODY, find_sealed
from memory_payloads import MemoryPayloadStore

CANARY = "the canary sings"
KEYS = {"k1": b"1" * 32, "k2": b"2" * 32}


def sealer(*ids, tenants=None):
    keys = BodyKeys(keys={one: KEYS[one] for one in ids}, current=ids[-1], tenants=tenants or {})
    return BodySealer(keys=keys, cipher=XaesCipher())


class EncryptedSite(Site):
    """A site whose letters have encrypted bodies: in their message, or in its store."""

    def __init__(self, over, *ids, tenants=None):
        super().__init__()
        self.payloads = MemoryPayloadStore()
        keys = sealer(*ids, tenants=tenants) if ids else None
        bodies = SealedLetters(sealer=keys, most=1000)
        self.replayer = replace(self.replayer, payloads=self.payloads, bodies=bodies)
        self.editor = replace(self.editor, replayer=self.replayer)
        self.offloader = BodyOffloader(self.payloads, over, sealer=sealer("k1"), seals_all=True)
        whole = letter_of()
        body = json.dumps([[{"card": CANARY}], {}, {}]).encode()
        message = self.offloader.sealed(replace(whole.message, body=body))
        check = check_in(message.headers)
        self.letter = replace(
            whole,
            message=message,
            event=replace(whole.event, data=SEALED),
            payload=None if check.is_inline else check.reference,
        )
        self.file(self.letter)


@pytest.fixture(params=[1000, 10], ids=["inline", "stored"])
def over(request):
    return request.param


def opened(site, message):
    check = check_in(message.headers)
    sealed = find_sealed(message.body) or site.payloads.fetch(check.reference)
    size = check.reference.unpacked_size
    return json.loads(sealer("k1", "k2").open(sealed, "e1", size, check.key))[0][0]


def test_a_replay_sends_the_message_as_it_is_and_needs_no_key(over):
    site = EncryptedSite(over)
    assert site.replayer.replay(site.entry, site.failure, by="ann") == ""
    sent = site.publisher.sent[-1]
    assert (sent.body, sent.headers[HEADER]) == (
        site.letter.message.body, site.letter.message.headers[HEADER],
    )  # fmt: skip
    assert opened(site, sent) == {"card": CANARY}


def test_a_replay_looks_for_a_stored_body_and_puts_none():
    site = EncryptedSite(10, "k1")
    site.payloads.put = None
    kept, site.payloads.payloads = site.payloads.payloads, {}
    assert "is gone" in site.replayer.replay(site.entry, site.failure, by="ann")
    assert not site.publisher.sent
    site.payloads.payloads = kept
    assert site.replayer.replay(site.entry, site.failure, by="ann") == ""


def test_an_edit_is_sealed_again_by_the_key_that_it_came_with_and_no_value_is_kept(over):
    site = EncryptedSite(over, "k1", "k2")
    draft = site.draft({"card": f"{CANARY} twice"})
    assert isinstance(draft, Draft), draft
    assert [str(one) for one in draft.changes] == [f'/card: "{CANARY}" → "{CANARY} twice"']
    assert site.replayer.replay(site.entry, site.failure, by="ann", order=draft.order) == ""
    sent = site.publisher.sent[-1]
    assert opened(site, sent) == {"card": f"{CANARY} twice"}
    assert check_in(sent.headers).key == "k1", "it may be a tenant's of whom this app does not know"
    detail = site.ledger.open(site.entry.id)
    assert CANARY not in repr(detail)
    [line] = [line for line in detail.history if line.what == "retrying"]
    assert line.detail == "replay 1 edited: /card: [sealed] → [sealed]"
    told = site.editor.told(draft.order)
    assert told.changes == draft.changes, "who may see it sees it again"


def test_an_edit_is_sealed_by_the_key_of_its_tenant_here(over):
    site = EncryptedSite(over, "k1", "k2", tenants={"acme": "k2"})
    for tenant, key in (("acme", "k2"), ("other", "k1"), (None, "k1")):
        event = replace(site.letter.event, tenant_id=tenant)
        edited = site.editor.draft(site.entry, replace(site.letter, event=event), {"card": "x"})
        assert check_in(edited.order.letter.message.headers).key == key


def test_an_edit_is_seen_by_operators_and_not_by_viewers(over):
    site = EncryptedSite(over, "k1")
    changes = site.draft({"card": "x"}).changes
    review = EditReview(entry_id="e", changes=changes, mark="m", is_encrypted=True)
    assert CANARY not in repr(review.for_viewers())
    assert review.for_viewers().changes[0].pointer == "/card"
    assert review.for_viewers().mark == ""
    plain = replace(review, is_encrypted=False)
    assert plain.for_viewers() is plain


def test_a_letter_that_names_another_key_than_its_body_is_not_opened(over):
    """Its edit would be sealed by the key that an attacker chose."""
    site = EncryptedSite(over, "k1", "k2")
    headers = dict(site.letter.message.headers)
    headers[HEADER] = headers[HEADER].replace('"k1"', '"k2"')
    forged = replace(site.letter, message=replace(site.letter.message, headers=headers))
    for found in (site.editor.shown(forged), site.editor.draft(site.entry, forged, {"card": 1})):
        assert isinstance(found, Refusal)
        assert "encrypted with the key 'k1', and its message names the key 'k2'" in str(found)


@pytest.mark.parametrize("ids", [(), ("k2",)])
def test_without_the_key_nothing_is_shown_nor_edited_and_the_key_is_named(over, ids):
    site = EncryptedSite(over, *ids)
    for found in (site.editor.shown(site.failure), site.draft({"card": 1})):
        assert isinstance(found, Refusal)
        assert "encrypted with the key 'k1', which is not among payloads.encryption_keys" in found


def test_what_is_larger_than_may_be_opened_is_not(over):
    site = EncryptedSite(over, "k1")
    bodies = replace(site.replayer.bodies, most=10)
    site.editor = replace(site.editor, replayer=replace(site.replayer, bodies=bodies))
    assert "larger than 10 bytes" in site.editor.shown(site.failure)


def test_a_body_that_is_gone_or_not_in_a_store_here_is_told():
    site = EncryptedSite(10, "k1")
    elsewhere = site.replayer.bodies.opened(site.letter, None)
    assert "this app has no payloads.url: set it" in elsewhere
    site.payloads.payloads.clear()
    assert "is gone" in site.editor.shown(site.failure)
    assert "is gone" in site.replayer.replay(site.entry, site.failure, by="ann")


def test_the_letter_says_that_it_is_encrypted_and_with_which_key(over):
    letter = EncryptedSite(over).letter
    assert Clearance().told(letter) == {"encrypted": "key k1"}
    assert (body_key(letter_of()), has_sealed_body(letter_of())) == ("", False)


def test_a_header_that_names_no_key_is_a_refusal():
    site = EncryptedSite(1000, "k1")
    headers = {**site.letter.message.headers, HEADER: "{"}
    broken = replace(site.letter, message=replace(site.letter.message, headers=headers))
    assert "it is not JSON" in site.replayer.bodies.opened(broken, None)
    assert body_key(broken) == ""


def test_an_edit_that_became_too_large_for_its_message_is_stored_as_it_is_sent():
    site = EncryptedSite(1000, "k1")
    made = site.draft({"card": "x" * 900}).order.letter
    headers = dict(made.message.headers)
    body = BodyOffloader(site.payloads, 1000).offloaded(
        made.message.body, "application/json", headers
    )
    assert body == STORED_BODY
    assert opened(site, replace(made.message, body=body, headers=headers)) == {"card": "x" * 900}
    small = site.letter.message
    headers = dict(small.headers)
    sent = BodyOffloader(site.payloads, 1000).offloaded(small.body, "application/json", headers)
    assert sent is small.body


class Undoings:
    def of(self, _handler):
        return "orders.undo"


def test_a_compensation_is_given_the_opened_data_and_the_skip_goes_as_it_came(over):
    site = EncryptedSite(over, "k1")
    compensator = Compensator(ledger=site.ledger, replayer=site.replayer, compensations=Undoings())
    plan = compensator._plan(site.entry, site.failure)
    assert plan.call.args == ({"card": CANARY},)
    assert plan.call.origin.key == "k1", "so it is encrypted, too"
    assert CANARY not in repr(plan.letter)
    plain = letter_of()
    assert compensator._plan(site.entry, plain).call.origin is None
    without = replace(compensator, replayer=EncryptedSite(over).replayer)
    assert "encrypted with the key 'k1'" in without._plan(site.entry, site.failure)
