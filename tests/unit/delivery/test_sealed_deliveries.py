"""A message whose body is encrypted: it is opened once it may run, and its letter shows nothing."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from datetime import timedelta

import pytest

from angzarr.adapters.celery.publish.body_offloader import BodyOffloader
from angzarr.adapters.cryptography.xaes import XaesCipher
from angzarr.dead_letters.codec import Form, decode, encode
from angzarr.dead_letters.letter import Reason
from angzarr.dead_letters.protection import Protection
from angzarr.dead_letters.redaction import Redaction, hides
from angzarr.dead_letters.whole_letters import WholeLetterQueue
from angzarr.delivery.delivery import DeadLettered, Duplicate, Handled, Retried
from angzarr.errors import GiveUp, IdempotencyConflictError, RetryLater
from angzarr.events import headers as names
from angzarr.payloads.body_sealer import SEALED, BodyKeys, BodySealer
from angzarr.payloads.claim_check import HEADER, check_in
from angzarr.payloads.sealed_message import sealed_body
from memory_payloads import MemoryPayloadStore

CANARY = "the canary sings"
RING = {"k1": b"1" * 32, "k2": b"2" * 32}


def sealer(*ids, current=None):
    keys = BodyKeys(keys={name: RING[name] for name in ids}, current=current or ids[-1])
    return BodySealer(keys=keys, cipher=XaesCipher())


@pytest.fixture
def world(make_world):
    made = make_world()
    made.payloads, made.sealer = MemoryPayloadStore(), sealer("k1")
    return made


@pytest.fixture(params=[1000, 10], ids=["inline", "stored"])
def sent(request, world):
    """Return a function that seals a message as its publisher does, small or stored."""

    def send(data=CANARY, *, key="k1", **headers):
        plain = world.message(data, **headers)
        offloader = BodyOffloader(
            world.payloads, request.param, sealer=sealer("k1", "k2", current=key), seals_all=True
        )
        return offloader.sealed(plain)

    return send


def raising(error):
    def call(_data, _context):
        raise error

    return call


def test_the_handler_gets_the_body_and_a_duplicate_is_known_by_its_digest(world, sent):
    seen = []
    world.handler(lambda data, context: seen.append((data, context.event.data)))
    message = sent()
    assert CANARY not in repr((message, world.payloads.payloads))
    assert isinstance(world.take(message), Handled)
    assert seen == [(CANARY, CANARY)]
    assert isinstance(world.take(sent()), Duplicate), "sealed anew, and the same"
    assert len(seen) == 1


def test_another_body_under_one_id_is_a_conflict_where_one_key_sealed_both(world, sent):
    world.handler(lambda _data, _context: None)
    world.take(sent())
    outcome = world.take(sent("another"))
    assert isinstance(outcome, DeadLettered)
    assert isinstance(outcome.error, IdempotencyConflictError)


def test_a_duplicate_that_another_key_sealed_or_none_is_no_conflict(world, sent):
    world.handler(lambda _data, _context: None)
    world.sealer = sealer("k1", "k2")
    world.take(sent())
    assert isinstance(world.take(sent(key="k2")), Duplicate)
    assert isinstance(world.take(world.message(CANARY)), Duplicate)


def test_a_letter_has_the_message_as_it_came_and_shows_nothing(world, sent):
    world.handler(raising(GiveUp("negative total")))
    message = sent()
    letter = world.take(message).letter
    assert (letter.message.body, letter.message.headers) == (message.body, message.headers)
    assert letter.event.data == SEALED
    check = check_in(message.headers)
    assert letter.payload == (None if check.is_inline else check.reference)
    assert not letter.is_elsewhere
    assert CANARY not in repr(letter)
    world.keeps = True
    world.sealer = sealer("k1")
    again = world.take(sent(event_id="e2")).letter
    assert again.message.body != b""
    assert CANARY not in repr(again), "nor one that is redacted"


def test_a_letter_is_the_same_once_it_was_written_and_read(world, sent):
    world.handler(raising(GiveUp("negative total")))
    letter = world.take(sent()).letter
    for form in Form:
        written = encode(letter, form)
        read = decode(written.body, written.content_type)
        assert (read.message.body, read.payload) == (letter.message.body, letter.payload)
        assert read.message.headers[HEADER] == letter.message.headers[HEADER]
        assert read.event.data == SEALED


@pytest.mark.parametrize("paths", [["**"], ["event.**", "args.**", "kwargs.**"]])
def test_redaction_takes_the_values_out_of_texts_and_leaves_the_sealed_body(world, sent, paths):
    redaction = Redaction.of(paths, [re.compile("total")])
    world.hide = redaction.of_texts
    world.handler(raising(GiveUp(f"{CANARY}: negative total")))
    letter = Protection(redaction=redaction)(world.take(message := sent()).letter)
    assert CANARY not in repr(letter)
    assert "total" not in letter.error_message
    assert letter.message.body == message.body
    assert not hides(letter), "so it can be replayed without a key of letters"


def test_what_a_handler_took_out_of_its_data_is_removed_as_well(world, sent):
    def take_out(data, _context):
        raise GiveUp(f"bad card {data.pop('card')}")

    redaction = Redaction.of(["event.**", "args.**"], [])
    world.hide, world.keeps = redaction.of_texts, True
    world.handler(take_out)
    assert CANARY not in repr(world.take(sent({"card": CANARY})).letter)


@pytest.mark.parametrize("fate", [GiveUp, TimeoutError])
@pytest.mark.parametrize("hides_values", [True, False])
def test_arguments_that_json_does_not_know_end_as_any_others(world, sent, fate, hides_values):
    moment = {"__type__": "datetime", "__value__": "2026-01-01T00:00:00+00:00"}
    world.keeps = hides_values
    if hides_values:
        world.hide = Redaction.of(["event.**", "args.**"], []).of_texts
    world.handler(raising(fate("no")))
    ended = world.take(sent({"at": moment}))
    assert isinstance(ended, DeadLettered if fate is GiveUp else Retried)


def test_a_whole_letter_is_not_made_of_a_sealed_one(world, sent):
    class Queue:
        def put(self, letters):
            self.letters = letters
            return [None] * len(letters)

    world.handler(raising(GiveUp("negative total")))
    letter = world.take(sent()).letter
    queue = Queue()
    assert WholeLetterQueue(queue, world.payloads).put([letter]) == [None]
    assert queue.letters == [letter]


@pytest.mark.parametrize("keys", [None, sealer("k2")])
def test_a_key_that_is_missing_makes_a_letter_that_names_it_and_runs_once_it_is_there(
    world, sent, keys
):
    seen = []
    world.handler(lambda data, _context: seen.append(data))
    world.sealer = keys
    outcome = world.take(message := sent())
    assert isinstance(outcome, DeadLettered)
    letter = outcome.letter
    assert letter.reason is Reason.UNDELIVERABLE
    assert (letter.error_code, letter.category) == ("PAYLOAD_KEY", "client")
    assert "encrypted with the key 'k1', which is not among payloads.encryption_keys" in (
        letter.error_message
    )
    assert (letter.message.body, letter.attempts) == (message.body, 0)
    world.sealer = sealer("k1", "k2")
    replay = replace(letter.message, headers={**letter.message.headers, names.REPLAY: 1})
    assert isinstance(world.take(replay), Handled)
    assert seen == [CANARY]


def test_the_body_of_another_event_is_refused(world, sent):
    world.handler(lambda _data, _context: None)
    other, mine = sent("another", event_id="e2"), sent()
    headers = {**mine.headers, HEADER: other.headers[HEADER]}
    outcome = world.take(replace(mine, body=other.body, headers=headers))
    assert isinstance(outcome, DeadLettered)
    assert outcome.letter.error_type == "angzarr.errors.PayloadCorrupt"
    assert "belongs to another event" in outcome.letter.error_message


def test_a_retry_keeps_the_sealed_message(world, sent):
    world.handler(raising(RetryLater(timedelta(seconds=1))))
    message = sent()
    assert isinstance(world.take(message), Retried)
    copy = world.last_copy()
    assert (copy.body, copy.headers[HEADER]) == (message.body, message.headers[HEADER])


def test_a_body_larger_than_a_worker_reads_is_not_opened(world, sent, monkeypatch):
    world.handler(lambda _data, _context: None)
    message = sent("x" * 300)
    monkeypatch.setattr(BodySealer, "open", None)
    world.most_unpacked = 100
    letter = world.take(message).letter
    assert "is larger than 100 bytes" in letter.error_message


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (sealed_body(b"no seal"), "PayloadCorrupt"),
        (b'[[], {"angzarr_body_is_encrypted": "?"}, {}]', "DecodeError"),
        (b'[["plain"], {}, {}]', "DecodeError"),
        (sealed_body(b"angzarr-sealed/1 k1 -\n"), "PayloadCorrupt"),
    ],
)
def test_what_only_claims_to_be_sealed_is_a_letter(world, body, error):
    world.handler(lambda _data, _context: None)
    offloader = BodyOffloader(None, 1000, sealer=sealer("k1"), seals_all=True)
    message = replace(offloader.sealed(world.message()), body=body)
    letter = world.take(message).letter
    assert letter.error_type == f"angzarr.errors.{error}"
    assert letter.message.body == body, "nothing of it is lost"


def test_a_body_that_is_no_task_is_a_letter(world):
    world.handler(lambda _data, _context: None)
    sealed = sealer("k1").seal(b"{", "e1", "k1")
    offloader = BodyOffloader(None, 1000, sealer=sealer("k1"), seals_all=True)
    message = offloader.sealed(world.message())
    said = json.loads(message.headers[HEADER]) | {"size": len(sealed), "unpacked_size": 1}
    message = replace(
        message, body=sealed_body(sealed), headers={**message.headers, HEADER: json.dumps(said)}
    )
    letter = world.take(message).letter
    assert letter.error_message.startswith("the body cannot be read")
    assert base64.b64encode(sealed) in letter.message.body
