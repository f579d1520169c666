"""Whatever calls itself a wrapped record can be filed: it must not stay queued for ever."""

from __future__ import annotations

import base64
import json
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hand_clock import HandClock
from tests.judging import classifier

from angzarr.adapters.sql.ledger.groups import SqlPeers
from angzarr.analysis.classification.evidence_collector import EvidenceCollector
from angzarr.analysis.ledger.failure import Unreadable
from angzarr.analysis.worker.decisions import DecisionMaker
from angzarr.analysis.worker.intake import Intake
from angzarr.dead_letters.codec import read_receipt
from angzarr.dead_letters.record import RECORD_CONTENT_TYPE, from_text, to_text
from angzarr.errors import DecodeError
from sqlite_ledger import SqliteLedger

#: What JSON of ours may hold: a mapping by other things than texts, and each tag.
KEYS = st.one_of(
    st.text(max_size=4), st.integers(), st.none(),
    st.sampled_from(["correlation_id", "exchange", "type", "\ud800"]),
    st.builds(lambda text: {"$bytes": text}, st.sampled_from(["YQ==", "?"])),
)  # fmt: skip
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(max_size=4), st.floats(),
    st.builds(lambda tag, text: {tag: text},
              st.sampled_from(["$bytes", "$decimal", "$float", "$uuid", "$datetime", "$text"]),
              st.sampled_from(["YQ==", "nan", "1e999999", "2026-01-01", "\ud800"])),
)  # fmt: skip
VALUES = st.recursive(
    LEAVES,
    lambda one: st.one_of(
        st.lists(one, max_size=3),
        st.dictionaries(st.text(max_size=4), one, max_size=3),
        st.lists(st.tuples(KEYS, one), max_size=3).map(lambda pairs: {"$dict": pairs}),
    ),
    max_leaves=6,
)
TOLD = st.fixed_dictionaries(
    {
        "broker": st.text(max_size=4) | VALUES,
        "place": VALUES,
        "is_unique": st.booleans(),
        "key": st.none() | st.just({"$bytes": "YQ=="}) | VALUES,
        "headers": st.lists(st.tuples(st.text(max_size=9), VALUES), max_size=3),
        "properties": VALUES,
    }
)


def body_of(told: object, raw: bytes = b"\xff") -> bytes:
    document = {
        "content_type": "text/plain",
        "record": json.dumps(told),
        "raw": base64.b64encode(raw).decode(),
    }
    return json.dumps(document).encode()


class Queue:
    """Gives one letter, and takes note of what is let go."""

    def __init__(self, body: bytes) -> None:
        self.receipt = read_receipt("order", body, RECORD_CONTENT_TYPE, None)
        self.gone: list[object] = []

    def receive(self, *_domains, **_limits):
        return [self.receipt]

    def done(self, receipts):
        self.gone += receipts


def filed(queue, ledger=None):
    """File what *queue* gives; return its entry, as a person sees it."""
    clock = HandClock()
    ledger = ledger or SqliteLedger(clock)
    deciding = DecisionMaker(
        ledger=ledger, name="analysis",
        gathering=EvidenceCollector(
            peers=SqlPeers(ledger.database), obstacle=lambda _one: "", clock=clock
        ),
        classify=classifier(()),
    )  # fmt: skip
    Intake(queue=queue, deciding=deciding, clock=clock, domains=["order"]).turn(timedelta())
    assert len(queue.gone) == 1
    (entry,) = ledger.get_failed_events(status=None).entries
    detail = ledger.open(entry.id)
    if isinstance(detail.failure, Unreadable) and detail.failure.record is not None:
        assert from_text(to_text(detail.failure.record)) is not None
        assert json.dumps(detail.failure.record.as_json())
    return entry, detail.failure


@given(st.one_of(TOLD.map(body_of), VALUES.map(body_of), st.binary(max_size=40)))
@settings(max_examples=150, deadline=None)
def test_any_bytes_that_call_themselves_a_record_are_filed(body):
    filed(Queue(body))


@pytest.mark.parametrize("where", ["place", "properties"])
@pytest.mark.parametrize("key", [1, None, True, {"$bytes": "YQ=="}])
def test_a_record_whose_names_are_no_texts_is_none(where, key):
    told = {
        "broker": "kafka", "place": {}, "is_unique": False, "key": None, "headers": [],
        "properties": {}, where: {"$dict": [[key, "x"]]},
    }  # fmt: skip
    with pytest.raises(DecodeError):
        from_text(json.dumps(told))
    queue = Queue(body_of(told))
    entry, failure = filed(queue)
    assert entry.domain == "order"
    assert failure.raw == queue.receipt.raw


class Picky(SqliteLedger):
    """Cannot store what has a header, for a reason that nobody foresaw."""

    def add_failed_events(self, failures, **options):
        if any(one.record and one.record.headers for one in failures):
            raise ValueError("cannot be stored")
        return super().add_failed_events(failures, **options)


def test_what_carried_it_is_left_out_where_nothing_else_helps():
    told = {
        "broker": "kafka", "place": {"topic": "t"}, "is_unique": True, "key": None,
        "headers": [["h", "x"]], "properties": {},
    }  # fmt: skip
    entry, failure = filed(Queue(body_of(told)), Picky(HandClock()))
    assert failure.raw == b"\xff"
    assert failure.record.broker == "kafka"
    assert "was not kept" in failure.problem
    same, _ = filed(Queue(body_of(told)), Picky(HandClock()))
    other, _ = filed(Queue(body_of({**told, "place": {"topic": "u"}})), Picky(HandClock()))
    assert same.id == entry.id != other.id
