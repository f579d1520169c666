"""Letters as entries: within the limits, with their order, whatever they hold."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from angzarr.adapters.sqs.letter_messages import (
    BATCH,
    BatchEntry,
    batches,
    entry_of,
    ordering,
    problem_of,
)
from angzarr.dead_letters.codec import Form
from angzarr.dead_letters.queue import RawLetter
from angzarr.events.event import Event
from contracts.dead_letters import a_letter

SQS_NAME = re.compile(r"[!-~]{1,128}")


@given(st.text(max_size=200), st.text(min_size=1, max_size=200))
def test_any_root_and_id_give_names_that_sqs_takes(root, letter_id):
    event = Event(id="e-1", type="order.placed", data={}, root=root)
    letter = a_letter("order", id=letter_id, event=event)
    names = ordering(letter)
    assert all(SQS_NAME.fullmatch(name) for name in names.values())


def test_letters_of_one_root_are_one_group_and_one_without_is_its_own():
    first, second = a_letter("order", 1), a_letter("order", 2, event=a_letter("order", 1).event)
    assert ordering(first)["MessageGroupId"] == ordering(second)["MessageGroupId"] == "r-1"
    alone = [ordering(a_letter("order", n, event=None))["MessageGroupId"] for n in (1, 2)]
    assert alone == ["order-1", "order-2"]


def test_each_putting_of_a_letter_is_a_message_of_its_own():
    letter = a_letter("order")
    first, second = (ordering(letter)["MessageDeduplicationId"] for _ in range(2))
    assert first != second


def test_bytes_that_are_no_letter_are_a_group_of_their_own():
    raw = RawLetter(domain="order", raw=b"x", content_type="a")
    assert ordering(raw)["MessageGroupId"] == raw.id


def test_a_content_type_that_no_attribute_carries_is_told():
    assert "content type" in problem_of(RawLetter(domain="order", raw=b"x", content_type="\x00"))
    assert problem_of(RawLetter(domain="order", raw=b"x", content_type="")) == ""
    assert problem_of(a_letter("order")) == ""


def test_only_a_fifo_queue_is_told_of_order():
    letter = a_letter("order")
    plain = entry_of(0, letter, Form.JSON, body="Message", fifo=False).request
    assert plain.keys() == {"Id", "Message", "MessageAttributes"}
    fifo = entry_of(0, letter, Form.JSON, body="MessageBody", fifo=True).request
    assert fifo.keys() - plain.keys() == {
        "MessageBody", "MessageGroupId", "MessageDeduplicationId",
    }  # fmt: skip


@given(st.lists(st.integers(1, 100), max_size=60))
def test_batches_keep_order_and_limits(sizes):
    entries = [BatchEntry(at, "order", size, {}) for at, size in enumerate(sizes)]
    cut = list(batches(entries, 100))
    assert [entry for batch in cut for entry in batch] == entries
    assert all(batch and len(batch) <= BATCH for batch in cut)
    assert all(sum(entry.size for entry in batch) <= 100 for batch in cut)
