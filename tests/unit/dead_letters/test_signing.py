"""Any change of what a replay would act on is found, whatever form the letter travelled in."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
from base64 import urlsafe_b64encode
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from tests.contracts.ledger import letter_of, message_of
from tests.unit.dead_letters.test_codec import letters

from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.ledger.database import LedgerDatabase
from angzarr.adapters.sql.ledger.store import SqlLedger
from angzarr.analysis.classification.grouping import Grouping
from angzarr.dead_letters.codec import Form, decode, encode
from angzarr.dead_letters.letter import DeadLetter, Mismatch, Reason
from angzarr.dead_letters.metadata import FULL_SIGNATURE, SIGNATURES, WORKER_FINGERPRINT
from angzarr.dead_letters.signing import Signatures, Trust, signed_form
from angzarr.events.event import Priority

OLD, NEW = b"old secret, 16 characters", b"new secret, 16 characters"
SIGN = Signatures(keys={"2025": OLD, "2026": NEW}, current="2026")


def signed():
    message = letter_of().message
    return SIGN.sign(letter_of(message=replace(message, priority=3, properties={"reply_to": "q"})))


@settings(max_examples=40)
@given(letters())
def test_a_signature_survives_both_forms(letter):
    written = SIGN.sign(letter)
    for form in Form:
        read = decode(*encode(written, form))
        assert SIGN.judge(read) == (Trust.VALID, "2026", True)
        assert SIGN.judge(decode(*encode(read, Form.BINARY))).trust is Trust.VALID


def test_a_signature_survives_the_ledger(tmp_path):
    ledger = SqlLedger(LedgerDatabase(build_engine(f"sqlite:///{tmp_path / 'ledger.db'}")))
    entry = ledger.add_failed_event(decode(*encode(signed())))
    assert SIGN.judge(ledger.open(entry.id).failure).trust is Trust.VALID
    ledger.close()


def test_signing_twice_gives_the_same_letter():
    assert SIGN.sign(signed()) == signed()


CHANGES = {
    "id": {"id": "another"},
    "domain": {"domain": "other"},
    "handler": {"handler": "os.system"},
    "reason": {"reason": Reason.REVOKED},
    "replay": {"replay": 1},
    "what a command expected": {"mismatch": Mismatch(3, 5, 3)},
    "that it was redacted": {"metadata": {"redacted": "1"}},
    "no event": {"event": None},
}
CHANGES_BY_FIELD = {name for fields in CHANGES.values() for name in fields} - {"metadata"}
OF_MESSAGE = {
    "body": b'[[{"total": 4}], {}, {}]',
    "queue": "payments",
    "exchange": "x",
    "routing_key": "payments",
    "priority": None,
    "content_type": "application/x-python-serialize",
    "content_encoding": "binary",
    "headers": {"task": "os.system", "id": "task-e1"},
    "properties": {"reply_to": "mine"},
}
OF_EVENT = {
    "id": "e2",
    "type": "OrderPaid",
    "domain": "other",
    "root": "r",
    "edition": "e",
    "sequence": 7,
    "correlation_id": None,
    "causation_id": "c",
    "tenant_id": "evil",
    "traceparent": "00-1-2-3",
    "priority": Priority.REALTIME,
    "config_pins": {"prices": "8"},
    "occurred_at": datetime(2026, 1, 1, tzinfo=UTC),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_of_the_letter_is_found(what):
    fields = CHANGES[what]
    if "metadata" in fields:
        fields = {"metadata": {**signed().metadata, **fields["metadata"]}}
    assert SIGN.judge(replace(signed(), **fields)).trust is Trust.FORGED


@pytest.mark.parametrize("field", OF_MESSAGE)
def test_a_change_of_the_message_is_found(field):
    forged = replace(signed(), message=replace(signed().message, **{field: OF_MESSAGE[field]}))
    assert SIGN.judge(forged).trust is Trust.FORGED


@pytest.mark.parametrize("field", OF_EVENT)
def test_a_change_of_the_event_is_found(field):
    forged = replace(signed(), event=replace(signed().event, **{field: OF_EVENT[field]}))
    assert SIGN.judge(forged).trust is Trust.FORGED


def test_no_field_can_borrow_from_its_neighbour():
    one = replace(signed().message, exchange="ab", routing_key="c")
    two = replace(signed().message, exchange="a", routing_key="bc")
    assert signed_form(letter_of(message=one)) != signed_form(letter_of(message=two))
    none = replace(signed().event, root=None, edition="")
    empty = replace(signed().event, root="", edition=None)
    assert signed_form(letter_of(event=none)) != signed_form(letter_of(event=empty))


#: Every field of a letter that is in neither form, and why.
NOT_SIGNED = {
    "canonical": "what the letter was read from; no copy with another content has one",
    "cover": "what others say of their payload, read from it; no letter of ours has one",
    "envelope": "no letter of ours has one when it is signed; a letter with one is never replayed",
    "payload": "the digest of the body is signed, wherever that lies",
    "message": "each field of it is tested below",
}
OF_THE_FAILURE = {
    "explanation": "others",
    "error_type": "ConnectionError",
    "error_code": "08006",
    "error_message": "connection reset",
    "error_stack": "File x",
    "category": "client",
    "attempts": 9,
    "first_attempt_at": datetime(2026, 1, 1, tzinfo=UTC),
    "last_attempt_at": datetime(2026, 1, 1, tzinfo=UTC),
    "sent_to_dlq_at": datetime(2026, 1, 1, tzinfo=UTC),
    "fingerprint": "f" * 16,
    "worker": "other",
    "version": "9",
    "component": "other",
    "component_type": "projector",
    "metadata": {"steps_left": '["refund"]'},
}


@pytest.mark.parametrize("name", OF_THE_FAILURE)
def test_a_change_of_what_a_decision_rests_on_is_found(name):
    value = OF_THE_FAILURE[name]
    if name == "metadata":
        value = {**signed().metadata, **value}
    assert SIGN.judge(replace(signed(), **{name: value})).trust is Trust.FORGED


def test_no_field_of_a_letter_is_forgotten():
    fields = {one.name for one in dataclasses.fields(DeadLetter)}
    assert fields == {*CHANGES_BY_FIELD, *OF_THE_FAILURE, *NOT_SIGNED}


def test_a_signature_of_an_older_release_covers_the_message_alone():
    metadata = {name: value for name, value in signed().metadata.items() if name != FULL_SIGNATURE}
    older = replace(signed(), metadata=metadata)
    assert SIGN.judge(older) == (Trust.VALID, "2026", False)
    assert SIGN.judge(replace(older, error_message="other words")).trust is Trust.VALID
    assert SIGN.judge(replace(older, message=message_of("e2"))).trust is Trust.FORGED


def test_the_signature_that_covers_more_is_the_one_that_counts():
    one = replace(signed(), error_message="other words")  # the older signature still holds
    assert SIGN.judge(one).trust is Trust.FORGED


def test_a_letter_that_was_put_into_another_group_keeps_its_signature():
    grouped = Grouping(in_app=("orders",))(signed())
    assert grouped.fingerprint != signed().fingerprint
    assert SIGN.judge(grouped) == (Trust.VALID, "2026", True)


def test_no_sender_chooses_the_group_of_a_signed_letter():
    metadata = {**signed().metadata, WORKER_FINGERPRINT: signed().fingerprint}
    moved = replace(signed(), fingerprint="f" * 16, metadata=metadata)
    assert Grouping()(moved) == signed()


def test_a_time_is_signed_as_the_moment_it_is():
    abroad = datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    letter = SIGN.sign(letter_of(event=replace(letter_of().event, occurred_at=abroad)))
    assert SIGN.judge(decode(*encode(letter))).trust is Trust.VALID


def test_any_configured_key_verifies_and_no_other():
    old = Signatures(keys={"2025": OLD}, current="2025").sign(letter_of())
    assert SIGN.judge(old) == (Trust.VALID, "2025", True)
    assert Signatures(keys={"2026": NEW}).judge(old) == (Trust.UNKNOWN_KEY, "2025", False)
    assert Signatures(keys={"2025": NEW}).judge(old) == (Trust.FORGED, "2025", False)
    assert Signatures().judge(old) == (Trust.UNVERIFIED, "2025", False)
    assert SIGN.judge(letter_of()) == (Trust.UNSIGNED, "", False)
    assert Signatures().sign(letter_of()) == letter_of()


@pytest.mark.parametrize(
    "said", ["", ":", "2026", "2026:", ":x", "2026:é\udcff", "a:b:c", "x" * 9999]
)
def test_odd_signatures_are_no_signatures(said):
    for name in SIGNATURES:
        trust, _, full = SIGN.judge(letter_of(metadata={name: said}))
        assert trust in {Trust.UNSIGNED, Trust.UNKNOWN_KEY, Trust.FORGED}
        assert not full


def test_the_form_is_the_one_that_is_documented():
    """Written down once more: letters in queues are signed with it."""
    letter = letter_of(
        event=None, message=replace(letter_of().message, headers={"b": b"x", "a": 1})
    )
    fields = [
        ("id", letter.id), ("domain", "order"), ("handler", "orders.sync"),
        ("reason", "exhausted"), ("replay", "0"), ("redacted", None), ("queue", "orders"),
        ("exchange", ""), ("routing_key", "orders"), ("priority", None),
        ("content_type", "application/json"), ("content_encoding", "utf-8"),
        ("headers", '{"a":1,"b":{"$bytes":"eA=="}}'), ("properties", "{}"),
        ("body", hashlib.sha256(letter.message.body).digest()),
    ]  # fmt: skip
    signed = SIGN.sign(letter).metadata
    assert signed["signature"] == f"2026:{mac(b'angzarr-letter-1', fields)}"
    names = ("first_attempt_at", "last_attempt_at", "sent_to_dlq_at")
    dates = [(name, getattr(letter, name).isoformat(timespec="microseconds")) for name in names]
    fields += [
        ("category", letter.category), ("error_type", letter.error_type),
        ("error_code", letter.error_code), ("error_message", letter.error_message),
        ("error_stack", letter.error_stack), ("explanation", letter.explanation),
        ("attempts", str(letter.attempts)), *dates,
        ("fingerprint", letter.fingerprint), ("component", letter.component),
        ("component_type", "handler"), ("worker", letter.worker), ("version", letter.version),
        ("metadata", "{}"),
    ]  # fmt: skip
    assert signed["signature_2"] == f"2026:{mac(b'angzarr-letter-2', fields)}"


def mac(form, fields):
    for part in (part for field in fields for part in field):
        raw = part.encode() if isinstance(part, str) else part
        form += bytes(8) if raw is None else (len(raw) + 1).to_bytes(8) + raw
    return urlsafe_b64encode(hmac.digest(NEW, form, "sha256")).decode().rstrip("=")


def test_a_secret_is_not_shown():
    assert "secret" not in repr(SIGN)
