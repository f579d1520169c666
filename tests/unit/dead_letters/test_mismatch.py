"""What a stale command expected comes through everything that a letter goes through."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.ledger import letter_of
from tests.unit.dead_letters.test_codec import foreign
from tests.unit.dead_letters.test_offloading_queue import LimitedQueue
from tests.unit.dead_letters.test_protection import BODY, CIPHER, SIGN, protection
from tests.unit.dead_letters.test_transfer import DOMAINS, Away, transfer

from angzarr.dead_letters.bounds import LETTER
from angzarr.dead_letters.codec import (
    PROTOBUF_CONTENT_TYPE,
    Form,
    decode,
    encode,
    from_line,
    read_receipt,
    to_line,
)
from angzarr.dead_letters.foreign import LATER_TYPE_NAME
from angzarr.dead_letters.letter import STRATEGIES, Mismatch, Reason
from angzarr.dead_letters.offloading_queue import OffloadingQueue
from angzarr.dead_letters.own_json import read_own
from angzarr.dead_letters.protection import Clearance
from angzarr.dead_letters.signing import Trust, signed_form
from angzarr.wire.book_pb2 import MergeStrategy
from angzarr.wire.dead_letter_pb2 import AngzarrDeadLetter
from hand_clock import HandClock
from memory_payloads import MemoryPayloadStore

STALE = Mismatch(3, 5, 3)
UINT32 = st.integers(0, 2**32 - 1)


def stale(mismatch=STALE, **fields):
    return letter_of(reason=Reason.SEQUENCE_MISMATCH, mismatch=mismatch, **fields)


@pytest.mark.parametrize("form", list(Form))
@given(st.builds(Mismatch, UINT32, UINT32, st.integers(-(2**31), 2**31 - 1)))
def test_it_survives_both_forms_whatever_its_strategy(form, mismatch):
    assert decode(*encode(stale(mismatch), form)) == stale(mismatch)


@pytest.mark.parametrize("mismatch", [STALE, Mismatch(0, 0, 0), Mismatch(1, 2, 77)])
def test_it_is_read_the_fast_way(mismatch):
    assert read_own(encode(stale(mismatch)).body, LETTER) == stale(mismatch)


@pytest.mark.parametrize("told", [{"expectedSequence": True}, {"mergeStrategy": "MERGE_NOW"}, 7])
def test_details_that_are_not_as_we_write_them_are_read_with_care(told):
    raw = json.loads(encode(stale(Mismatch(1, 0, 0))).body) | {"sequenceMismatch": told}
    assert read_own(json.dumps(raw).encode(), LETTER) is None


def test_numbers_beyond_what_the_wire_holds_are_cut_in_both_forms():
    letter = stale(Mismatch(2**40, -1, 3))
    for form in Form:
        assert decode(*encode(letter, form)).mismatch == Mismatch(2**32 - 1, 0, 3)


@pytest.mark.parametrize("strategy", [3, 9])
@pytest.mark.parametrize("form", list(Form))
def test_that_of_others_is_read_and_travels_on(form, strategy):
    wire = foreign()
    wire.sequence_mismatch.merge_strategy = strategy
    letter = decode(wire.SerializeToString(), PROTOBUF_CONTENT_TYPE)
    assert (letter.reason, letter.mismatch) == (
        Reason.SEQUENCE_MISMATCH, Mismatch(3, 5, strategy),
    )  # fmt: skip
    assert letter.error_message == "expected sequence 3, the aggregate is at 5"
    again = decode(*encode(letter, form))
    assert again.mismatch == letter.mismatch
    written = AngzarrDeadLetter.FromString(encode(again, Form.BINARY).body)
    assert written.sequence_mismatch == wire.sequence_mismatch


def test_strategies_of_the_later_generation_are_renumbered():
    wire = foreign()
    wire.sequence_mismatch.merge_strategy = 4
    content_type = f'application/x-protobuf; messageType="{LATER_TYPE_NAME}"'
    assert decode(wire.SerializeToString(), content_type).mismatch == STALE


def test_a_letter_for_another_reason_has_none():
    assert decode(*encode(letter_of())).mismatch is None


def test_people_read_the_wires_own_names():
    assert [f"MERGE_{name}" for name in STRATEGIES] == MergeStrategy.keys()
    assert (STALE.strategy_name, Mismatch(0, 0, -1).strategy_name) == ("MANUAL", "-1")
    assert STALE.told() == {"expected": 3, "actual": 5, "strategy": "manual"}


# -- what a letter goes through ------------------------------------------------------------------


@pytest.mark.parametrize("form", list(Form))
def test_it_survives_redaction_sealing_signing_and_clearance(form):
    letter = stale(message=replace(letter_of().message, body=BODY))
    protect = protection(signatures=SIGN)
    travelled = decode(*encode(protect(letter), form))
    assert travelled.mismatch == STALE
    cleared = Clearance(signatures=SIGN, cipher=CIPHER)(travelled)
    assert (cleared.mismatch, cleared.message) == (STALE, letter.message)


@pytest.mark.parametrize("forged", [None, *(STALE._replace(**{n: 1}) for n in STALE._fields)])
def test_a_change_of_it_is_found(forged):
    letter = decode(*encode(SIGN.sign(stale())))
    assert SIGN.judge(letter).trust is Trust.VALID
    assert SIGN.judge(replace(letter, mismatch=forged)).trust is Trust.FORGED


def test_it_cannot_be_put_into_a_letter_that_was_signed_without():
    assert SIGN.judge(replace(SIGN.sign(letter_of()), mismatch=STALE)).trust is Trust.FORGED
    assert b"mismatch" not in signed_form(letter_of())


def test_it_stays_in_a_letter_whose_body_is_offloaded():
    queue, store = LimitedQueue(), MemoryPayloadStore()
    large = stale(message=replace(letter_of().message, body=b"x" * 9_000))
    assert OffloadingQueue(queue, store).put([large]) == [None]
    (taken,) = queue.taken
    assert (taken.payload is not None, taken.mismatch) == (True, STALE)


def test_it_survives_being_moved():
    clock, name = HandClock(), uuid.uuid4().hex
    source, target = Away(f"{name}-from", clock), Away(f"{name}-to", clock)
    source.inner.put([stale()])
    transfer(source, target, clock).run()
    (receipt,) = target.inner.receive(DOMAINS, limit=9, wait=timedelta(0))
    assert receipt.letter == stale()


@pytest.mark.parametrize("form", list(Form))
def test_it_survives_an_export_and_an_import(form):
    receipt = read_receipt("order", *encode(stale(), form), None)
    assert from_line(to_line(receipt)).letter == stale()
