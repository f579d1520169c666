"""What a webhook is told of an escalation, and what becomes of its answer."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.escalations import an_escalation

from angzarr.aggregates.book import Address
from angzarr.aggregates.command import Command, Origin
from angzarr.errors import WebhookError
from angzarr.events.event import Event, decoder_for, event_type_of, to_json
from angzarr.sagas.escalation import (
    LONGEST_REASON,
    Escalation,
    deliver,
    escalation_of,
    shortened,
    webhook_body,
    webhook_json,
)
from angzarr.sagas.rejection import Rejection
from angzarr.webhooks import PostResult


def test_the_body_says_what_the_specification_says():
    assert webhook_json(an_escalation()) == {
        "saga_name": "saga-order-fulfilment",
        "triggering_aggregate": {"domain": "order", "root": "o-1"},
        "triggering_sequence": 4,
        "triggering_event_sequence": 4,
        "rejection_reason": "out of stock",
        "compensation_reason": "the aggregate answered nothing",
        "occurred_at": "2026-01-01T12:00:00Z",
    }
    assert json.loads(webhook_body(an_escalation())) == webhook_json(an_escalation())


def test_a_moment_elsewhere_is_told_in_utc():
    there = datetime(2026, 1, 1, 14, 0, tzinfo=timezone(timedelta(hours=2)))
    said = webhook_json(an_escalation(occurred_at=there))
    assert said["occurred_at"] == "2026-01-01T12:00:00Z"


@given(text=st.text(max_size=3 * LONGEST_REASON), moment=st.datetimes(timezones=st.just(UTC)))
def test_whatever_it_says_the_body_is_bounded_and_the_same_each_time(text, moment):
    said = an_escalation(
        saga_name=text, domain=text, root=text, rejection_reason=text, compensation_reason=text,
        correlation_id=text, occurred_at=moment,
    )  # fmt: skip
    body = webhook_body(said)
    assert len(body) < 12 * (2 * LONGEST_REASON + 3 * 200) + 1000
    assert webhook_body(shortened(said)) == body
    assert shortened(shortened(said)) == shortened(said)


def test_a_text_that_is_cut_shows_it():
    said = webhook_json(an_escalation(rejection_reason="x" * 5000))
    assert said["rejection_reason"] == "x" * (LONGEST_REASON - 1) + "…"


def test_what_is_published_is_read_again_as_it_was():
    assert event_type_of(Escalation) == "angzarr.Escalation"
    assert decoder_for(Escalation)(to_json(an_escalation())) == an_escalation()


@pytest.mark.parametrize("odd", ["", "a b", "a\r\nx-evil: 1", "ä", "x" * 201, "\x00"])
def test_an_id_that_could_not_be_a_header_is_refused(odd):
    with pytest.raises(ValueError, match="an escalation's id"):
        an_escalation(id=odd)


def test_a_moment_without_a_zone_is_refused():
    with pytest.raises(ValueError, match="UTC-aware"):
        an_escalation(occurred_at=datetime(2026, 1, 1))  # noqa: DTZ001 - that is the case


REJECTION = Rejection(
    id="r-1",
    command=Command(
        event=Event(id="c-1", type="ReserveStock", data={}, domain="inventory", root="sku-1",
                    correlation_id="flow-1")
    ),
    origin=Origin(
        saga="saga-order-fulfilment", source=Address("order", "o-1"), sequence=4
    ),
    reason="out of stock",
    rejected_at=datetime(2026, 1, 1, 12, tzinfo=UTC),
)  # fmt: skip


def test_a_rejection_that_nobody_undid_is_told_with_all_that_people_need():
    said = escalation_of(REJECTION, "the aggregate answered nothing")
    assert said == an_escalation(id=said.id)


def test_one_rejection_for_one_reason_is_one_escalation():
    one = escalation_of(REJECTION, "it answered nothing")
    assert one == escalation_of(REJECTION, "it answered nothing")
    assert one.id != escalation_of(REJECTION, "it failed").id


# -- delivery ----------------------------------------------------------------------------------


def refusal(answer):
    with pytest.raises(WebhookError) as caught:
        deliver(an_escalation(), lambda _id, _body: answer)
    return caught.value


def test_it_is_posted_once_under_its_id():
    posted = []

    def post(message_id, body):
        posted.append((message_id, body))
        return PostResult(arrived=True, status=204)

    deliver(an_escalation(), post)
    assert posted == [("esc-1", webhook_body(an_escalation()))]


@pytest.mark.parametrize(
    ("answer", "ill"),
    [(PostResult(problem="ConnectError: Connection refused", ill=True), True),
     (PostResult(problem="it answered 500", ill=True, status=500), True),
     (PostResult(problem="it answered 429", ill=True, status=429), True),
     (PostResult(problem="it answered 408", status=408), True),
     (PostResult(problem="it answered 425", status=425), True),
     (PostResult(problem="it answered 410", gone=True, status=410), False),
     (PostResult(problem="it answered 409", status=409), False),
     (PostResult(problem="it answered 307, a redirect", status=307), False)],
)  # fmt: skip
def test_only_an_ill_receiver_is_tried_again(answer, ill):
    error = refusal(answer)
    assert error.ill is ill
    assert error.status == answer.status
    assert answer.problem in str(error)
    assert ("then replay this letter" in str(error)) is not ill


def test_what_the_receiver_asks_for_is_handed_on():
    wish = timedelta(seconds=90)
    answer = PostResult(problem="it answered 503", ill=True, status=503, retry_after=wish)
    assert refusal(answer).retry_after == wish


def test_the_error_survives_the_way_between_processes():
    error = refusal(PostResult(problem="it answered 503", ill=True, status=503))
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes, as prefork does it
    assert (str(again), again.ill, again.status) == (str(error), True, 503)
