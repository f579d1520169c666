"""What leaves a worker, and what a letter must pass before a replay."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from joserfc.jwe import JWERegistry, encrypt_compact
from joserfc.jwk import OctKey
from tests.contracts.ledger import letter_of, message_of, unreadable_message
from tests.unit.dead_letters.test_codec import letters

from angzarr.adapters.jose.jwe import JweCipher
from angzarr.adapters.memory.dead_letters import MemoryDeadLetterQueue
from angzarr.analysis.ledger.failure import entry_id_of
from angzarr.dead_letters.codec import Form, decode, encode
from angzarr.dead_letters.letter import Distrusted, Refusal
from angzarr.dead_letters.offloading_queue import without_body
from angzarr.dead_letters.protection import (
    SEALED,
    SEALED_TYPE,
    Clearance,
    Encrypt,
    ProtectedQueue,
    Protection,
    is_sealed,
    key_id,
    opened,
)
from angzarr.dead_letters.redaction import Redaction
from angzarr.dead_letters.signing import Signatures, Trust
from memory_payloads import MemoryPayloadStore

REDACT = Redaction.of(["**.password", "headers.authorization"], [])
KEYS = {"k1": b"1" * 32, "k2": b"2" * 32}
CIPHER = JweCipher(KEYS, "k2")
SIGN = Signatures(keys={"s1": b"s" * 16}, current="s1")
BODY = b'[[{"user": "ann", "password": "hunter2"}],  {}, {"callbacks": null}]'


def secret_letter(**fields):
    message = replace(message_of(authorization="Basic aHVudGVyMg"), body=BODY)
    event = replace(letter_of().event, data=json.loads(BODY)[0][0])
    return letter_of(**{"message": message, "event": event, **fields})


def protection(encrypt=Encrypt.REDACTED, cipher=CIPHER, **fields):
    return Protection(redaction=REDACT, cipher=cipher, encrypt=encrypt, **fields)


# -- sealing ---------------------------------------------------------------------------------


@settings(max_examples=40)
@given(letters(), st.sampled_from([Encrypt.REDACTED, Encrypt.ALL]), st.sampled_from(list(Form)))
def test_a_sealed_message_is_opened_as_it_was(letter, encrypt, form):
    plain = decode(*encode(letter, form))
    travelled = decode(*encode(protection(encrypt)(letter), form))
    found = opened(travelled, CIPHER) if is_sealed(travelled) else travelled
    assert is_sealed(travelled) or encrypt is Encrypt.REDACTED
    assert (found.message, found.event) == (plain.message, plain.event)


def test_only_what_would_not_be_whole_is_sealed_by_default():
    assert not is_sealed(protection()(letter_of()))
    assert is_sealed(protection()(secret_letter()))


def test_a_sealed_letter_still_shows_what_is_no_secret():
    shown = protection()(secret_letter())
    assert shown.event.data == {"user": "ann", "password": "[redacted]"}
    assert shown.message.headers["authorization"] == "[redacted]"
    assert (shown.message.task, shown.message.queue) == ("orders.sync", "orders")
    assert key_id(shown) == "k2"
    for form in Form:
        assert b"hunter2" not in encode(shown, form).body


def test_where_all_is_sealed_no_payload_is_shown():
    message = message_of(argsrepr="[{'total': 3}]", kwargsrepr="{}")
    shown = protection(Encrypt.ALL)(letter_of(message=message))
    assert shown.event.data == SEALED
    assert shown.message.headers["argsrepr"] == SEALED
    for form in Form:
        assert b"total" not in encode(shown, form).body


def test_without_a_key_or_the_wish_nothing_is_sealed():
    for unsealed in (protection(cipher=None), protection(Encrypt.NONE)):
        shown = unsealed(secret_letter())
        assert shown.message.content_type == "application/json"
        assert json.loads(shown.message.body)[0][0]["password"] == "[redacted]"


def test_a_letter_that_is_written_again_has_the_same_bytes():
    """Or each duplicate of an unreadable message would have an entry of its own."""
    guard = protection(Encrypt.ALL, signatures=SIGN)
    assert encode(guard(secret_letter())) == encode(guard(secret_letter()))
    assert entry_id_of(guard(unreadable_message())) == entry_id_of(guard(unreadable_message()))
    other = guard(replace(secret_letter(), id="another"))
    assert other.message.body.split(b".")[2] != guard(secret_letter()).message.body.split(b".")[2]


@given(st.integers(0, 5_000), st.integers(0, 255))
def test_a_sealed_body_that_was_changed_is_refused(at, byte):
    sealed = protection()(secret_letter())
    body = bytearray(sealed.message.body)
    at %= len(body)
    changed = body[at] != byte
    body[at] = byte
    found = opened(replace(sealed, message=replace(sealed.message, body=bytes(body))), CIPHER)
    assert not changed or isinstance(found, Refusal) or found.message == secret_letter().message


@pytest.mark.parametrize(
    "body", [b"", b"....", b"a.b.c.d.e", b"\xff\x00", b"e30..e30.e30.e30", b"." * 99]
)
def test_a_body_that_is_no_jwe_is_refused(body):
    sealed = protection()(secret_letter())
    found = opened(replace(sealed, message=replace(sealed.message, body=body)), CIPHER)
    assert isinstance(found, Refusal)


def test_a_sealed_body_is_refused_by_any_other_letter():
    sealed = protection()(secret_letter())
    assert opened(replace(sealed, id="l2"), CIPHER) == "its sealed body was made for another letter"


def test_any_configured_key_opens_and_an_unknown_one_is_named():
    sealed = protection(cipher=JweCipher(KEYS, "k1"))(secret_letter())
    assert opened(sealed, CIPHER).message == secret_letter().message
    assert "key 'k1', which is not among" in opened(sealed, JweCipher({"k2": KEYS["k2"]}, "k2"))
    assert "damaged, or its key" in opened(sealed, JweCipher({"k1": KEYS["k2"]}, "k1"))
    assert "'k1': set dlq.encryption_keys" in opened(sealed, None)


def test_a_letter_of_more_than_the_librarys_64_kb_is_sealed_and_opened():
    large = letter_of(message=replace(message_of(), body=b"\x00" * 3_000_000))
    assert opened(protection(Encrypt.ALL)(large), CIPHER).message == large.message


@pytest.mark.parametrize("more", [{"zip": "DEF"}, {"alg": "A256KW"}])
def test_no_other_algorithm_and_no_compression_is_opened(more):
    sealed = protection()(secret_letter())
    header = {"alg": "dir", "enc": "A256GCM", "kid": "k2", "letter": sealed.id, **more}
    registry = JWERegistry(
        algorithms=["dir", "A256KW", "A256GCM", "DEF"], strict_check_header=False
    )
    key = OctKey.import_key(KEYS["k2"])
    body = encrypt_compact(header, b"x", key, registry=registry).encode()
    found = opened(replace(sealed, message=replace(sealed.message, body=body)), CIPHER)
    assert "damaged" in found


# -- the queue -------------------------------------------------------------------------------


def test_no_letter_goes_into_the_queue_unprotected(unused_name):
    queue = ProtectedQueue(MemoryDeadLetterQueue(unused_name), protection(signatures=SIGN))
    assert queue.put([secret_letter(), letter_of("e2")]) == [None, None]
    receipts = queue.receive(["order"], limit=9, wait=timedelta(0))
    assert [is_sealed(receipt.letter) for receipt in receipts] == [True, False]
    assert {SIGN.judge(receipt.letter).trust for receipt in receipts} == {Trust.VALID}
    assert not any(b"hunter2" in receipt.raw for receipt in receipts)
    queue.done(receipts)
    queue.close()
    assert MemoryDeadLetterQueue(unused_name).receive(["order"], limit=1, wait=timedelta(0)) == []


@pytest.mark.parametrize(
    "letter",
    [
        letter_of(envelope=b"\x9a\x06\x01x"),
        replace(SIGN.sign(letter_of()), handler="forged"),
    ],
    ids=["of others", "signed"],
)
def test_what_this_process_did_not_write_is_put_as_it_is(letter):
    assert protection(Encrypt.ALL, signatures=SIGN)(letter) is letter


@pytest.mark.parametrize("encrypt", [Encrypt.NONE, Encrypt.REDACTED, Encrypt.ALL])
def test_a_message_that_claims_to_be_sealed_is_protected_all_the_same(encrypt):
    """Anybody can publish with that content type; the letter about it is ours."""
    secret = secret_letter()
    letter = replace(secret, message=replace(secret.message, content_type=SEALED_TYPE))
    left = protection(encrypt, signatures=SIGN)(letter)
    assert SIGN.judge(left).trust is Trust.VALID
    assert "hunter2" not in f"{left.message} {left.event}"
    if encrypt is not Encrypt.NONE:
        assert Clearance(signatures=SIGN, cipher=CIPHER)(left).message == letter.message


# -- the check before a replay ---------------------------------------------------------------


def test_a_letter_passes_as_it_is_where_nothing_is_configured():
    assert Clearance()(letter_of()) == letter_of()
    assert Clearance()(SIGN.sign(letter_of())) == SIGN.sign(letter_of())
    assert Clearance().told(letter_of()) == {}


def test_a_signed_and_sealed_letter_is_verified_and_opened():
    clear = Clearance(signatures=SIGN, cipher=CIPHER)
    sealed = decode(*encode(protection(signatures=SIGN)(secret_letter())))
    cleared = clear(sealed)
    assert cleared.message == secret_letter().message
    assert cleared.id == sealed.id
    assert clear.told(sealed) == {"signature": "valid, key s1", "sealed": "key k2"}


@pytest.mark.parametrize(
    ("letter", "said"),
    [
        (letter_of(), "it is not signed"),
        (replace(SIGN.sign(letter_of()), handler="x"), "it was forged or changed"),
        (
            Signatures(keys={"s9": b"9" * 16}, current="s9").sign(letter_of()),
            "signed with the key 's9', which is not among dlq.signing_keys",
        ),
        (letter_of(envelope=b"theirs"), "it is not signed"),
    ],
)
def test_a_letter_that_may_be_forged_is_refused(letter, said):
    found = Clearance(signatures=SIGN)(letter)
    assert isinstance(found, Distrusted)
    assert said in found


def test_in_a_transition_only_unsigned_letters_are_accepted():
    clear = Clearance(signatures=SIGN, accept_unsigned=True)
    assert clear(letter_of()) == letter_of()
    assert isinstance(clear(replace(SIGN.sign(letter_of()), handler="x")), Distrusted)
    emptied = letter_of(metadata={"signature": "s1:"})
    assert isinstance(clear(emptied), Distrusted)


def test_a_letter_whose_payload_was_redacted_and_not_sealed_is_refused():
    shown = protection(cipher=None)(secret_letter())
    assert "were removed and no key was there" in Clearance(cipher=CIPHER)(shown)
    texts = Protection(redaction=Redaction.of(["metadata.*"], []))(secret_letter())
    assert Clearance()(texts) == texts


def test_a_letter_of_ours_with_fields_of_others_is_neither_routed_nor_opened():
    odd = replace(protection()(secret_letter()), envelope=b"theirs")
    assert Clearance(cipher=CIPHER)(odd) is odd


def test_a_sealed_body_that_lies_elsewhere_is_verified_before_it_is_fetched_and_opened_after():
    clear = Clearance(signatures=SIGN, cipher=CIPHER)
    whole = protection(signatures=SIGN)(secret_letter())
    reference = MemoryPayloadStore().put(whole.message.body)
    sent = decode(*encode(without_body(whole, reference)))
    assert clear.told(sent) == {"signature": "valid, key s1", "sealed": "yes"}
    assert clear(sent) == sent
    fetched = replace(sent, message=replace(sent.message, body=whole.message.body), payload=None)
    assert clear(fetched).message == secret_letter().message
    elsewhere = replace(sent, payload=MemoryPayloadStore().put(b"another body"))
    assert isinstance(clear(elsewhere), Distrusted)


def test_a_seal_is_looked_into_only_by_whoever_has_the_key():
    sealed = protection()(secret_letter())
    assert "set dlq.encryption_keys" in Clearance()(sealed)
    assert sealed.message.content_type == SEALED_TYPE
    odd = replace(sealed, message=replace(sealed.message, body=b"\xff"))
    assert Clearance().told(odd) == {"sealed": "yes"}


@pytest.fixture
def unused_name(tmp_path):
    return str(tmp_path)
