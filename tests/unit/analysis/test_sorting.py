"""Letters in the queue of no domain: each app takes its own, and sends another's to that one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from angzarr.analysis.sorting import LetterSorting
from angzarr.dead_letters.queue import Receipt, TooLarge
from angzarr.events.message import Message

MESSAGE = Message(
    body=b"[[], {}, {}]", content_type="application/json", content_encoding="utf-8",
    headers={"id": "m1", "task": "shop.pay"}, queue="celery",
)  # fmt: skip


class Queue:
    """Takes raw letters, or refuses them."""

    def __init__(self, refusal=None):
        self.taken, self.refusal = [], refusal

    def put_raw(self, letters):
        self.taken.extend(letters)
        return [self.refusal] * len(letters)

    def put(self, letters):
        raise AssertionError

    def close(self):
        pass


@pytest.fixture
def receipt(letter_in_words):
    def make(component, *, domain="unknown", **other):
        letter = replace(letter_in_words, component=component, message=MESSAGE, **other)
        return Receipt(domain=domain, letter=letter, raw=b"as it came", content_type="x/y")

    return make


@pytest.fixture
def letter_in_words():
    from datetime import UTC, datetime

    from angzarr.dead_letters.letter import DeadLetter, Reason

    now = datetime(2026, 1, 1, tzinfo=UTC)
    return DeadLetter(
        id="l1", domain="unknown", handler="shop.pay", reason=Reason.REFUSED, explanation="no",
        message=MESSAGE, error_type="E", error_code="E", error_message="no", first_attempt_at=now,
        last_attempt_at=now, sent_to_dlq_at=now, worker="h", version="1", component="shop",
        component_type="task",
    )  # fmt: skip


def sorting(queue):
    return LetterSorting(queue, "shop", frozenset({"shop", "order", "unknown"}))


@pytest.mark.parametrize("component", ["billing", "billing.tasks", "Billing"])
def test_another_apps_letter_goes_to_that_app_as_it_came(receipt, component):
    queue, theirs = Queue(), receipt(component)
    assert sorting(queue).passed_on([receipt("shop"), theirs]) == [theirs]
    (raw,) = queue.taken
    assert raw.domain == component.lower().replace(".", "-")
    assert (raw.raw, raw.content_type) == (b"as it came", "x/y")


@pytest.mark.parametrize(
    "made",
    [
        {"component": "shop"},
        {"component": "order"},  # a name that this app reads as well
        {"component": "angzarr"},  # it has no name
        {"component": ""},
        {"component": "billing", "domain": "order"},  # in a queue of ours
    ],
)
def test_its_own_and_what_is_nobodys_in_particular_is_filed_here(receipt, made):
    queue = Queue()
    assert sorting(queue).passed_on([receipt(**made)]) == []
    assert queue.taken == []


def test_what_is_no_letter_or_no_task_is_filed_here(receipt):
    queue = Queue()
    unread = Receipt(domain="unknown", letter=None, raw=b"?", content_type="x/y", problem="?")
    foreign = receipt("orders-service")
    bare = replace(foreign.letter, message=replace(MESSAGE, headers={}))
    assert sorting(queue).passed_on([unread, replace(foreign, letter=bare)]) == []
    assert queue.taken == []


@pytest.mark.parametrize("refusal", ["its queue is missing", TooLarge("it is too large")])
def test_a_letter_that_is_not_taken_there_is_filed_here(receipt, refusal):
    assert sorting(Queue(refusal)).passed_on([receipt("billing")]) == []
