from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.contracts.ledger import letter_of, message_of, unreadable_message
from tests.hand_clock import START
from tests.judging import ILL, WELL, classifier, evidence_of, fared

from angzarr.analysis.ledger.entry import FailureClass
from angzarr.analysis.ledger.failure import Unreadable
from angzarr.analysis.ledger.transition import Action
from angzarr.dead_letters.letter import Distrusted, Reason

classify = classifier()
NO_HANDLER = "no handler is registered as 'orders.sync'"


def decide(replays=0, target_problem="", **fields):
    return classify(evidence_of(replays=replays, target_problem=target_problem, **fields))


@pytest.mark.parametrize("category", ["transient", "conflict", "server", "external"])
def test_what_may_pass_by_itself_is_replayed_after_a_pause(category):
    decision = decide(category=category, replays=1)
    assert decision.action is Action.REPLAY
    assert decision.failure_class is FailureClass.TRANSIENT_ONGOING
    assert decision.delay == timedelta(seconds=60)
    assert category in decision.evidence
    assert "1 of 3 replays used" in decision.evidence


@pytest.mark.parametrize(
    ("replays", "action"), [(2, Action.REPLAY), (3, Action.HOLD), (4, Action.HOLD)]
)
def test_at_the_cap_a_person_is_asked(replays, action):
    assert decide(replays=replays).action is action


def test_event_without_a_target_is_held_not_replayed():
    decision = decide(target_problem=NO_HANDLER)
    assert (decision.action, decision.evidence) == (Action.HOLD, NO_HANDLER)
    assert decision.failure_class is FailureClass.CONFIGURATION_ERROR


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"category": "authorization"}, FailureClass.CONFIGURATION_ERROR),
        ({"category": "budget"}, FailureClass.CONFIGURATION_ERROR),
        ({"category": "client"}, FailureClass.BUSINESS_REJECTION),
        ({"category": "integrity"}, FailureClass.BUSINESS_REJECTION),
        ({"category": "unknown", "error_type": "ValueError"}, FailureClass.CODE_DEFECT),
        ({"category": "unknown", "error_type": "x.LockTimeout"}, FailureClass.TRANSIENT_ONGOING),
        ({"category": "unknown", "error_type": ""}, FailureClass.UNKNOWN),
        ({"category": "of others"}, FailureClass.UNKNOWN),
        (
            {"category": "client", "error_type": "pydantic_core.ValidationError"},
            FailureClass.DATA_CORRUPTION,
        ),
        (
            {"category": "client", "error_type": "angzarr.errors.GiveUp"},
            FailureClass.BUSINESS_REJECTION,
        ),
        ({"reason": Reason.CONFLICT, "category": "integrity"}, FailureClass.DATA_CORRUPTION),
        ({"reason": Reason.UNDELIVERABLE, "category": "client"}, FailureClass.DATA_CORRUPTION),
    ],
)
def test_everything_else_is_held_with_its_class_and_evidence(fields, found):
    decision = decide(**fields)
    assert (decision.action, decision.failure_class) == (Action.HOLD, found)
    assert decision.evidence


@pytest.mark.parametrize("reason", [Reason.REFUSED, Reason.UNDELIVERABLE])
def test_a_letter_that_gives_no_reason_is_said_to_give_none(reason):
    message = replace(message_of(), body=b"")
    letter = letter_of(
        reason=reason,
        category="unknown",
        explanation="",
        error_type="",
        error_message="",
        event=None,
        message=message,
    )
    assert "the letter says nothing of why" in classify(evidence_of(letter)).evidence
    spoken = replace(letter, error_message="payload gone")
    assert "payload gone" in classify(evidence_of(spoken)).evidence


@pytest.mark.parametrize("reason", [Reason.TOO_OLD, Reason.OUT_OF_TIME])
def test_too_old_is_held_although_its_error_was_the_dependencys(reason):
    decision = decide(reason=reason, category="external")
    assert (decision.action, decision.failure_class) == (Action.HOLD, FailureClass.TOO_OLD)


def test_what_kills_its_worker_is_archived():
    decision = decide(reason=Reason.POISON, category="unknown")
    assert (decision.action, decision.failure_class) == (Action.ARCHIVE, FailureClass.POISON)


def test_revoked_task_is_skipped():
    decision = decide(reason=Reason.REVOKED, category="unknown")
    assert (decision.action, decision.failure_class) == (Action.SKIP, FailureClass.REVOKED)


def test_unknown_task_is_a_missing_handler_not_bad_data():
    decision = decide(reason=Reason.UNDELIVERABLE, target_problem=NO_HANDLER)
    assert decision.failure_class is FailureClass.CONFIGURATION_ERROR


@pytest.mark.parametrize(
    "failure",
    [
        unreadable_message(),
        Unreadable(domain="d", raw=b"?", content_type="", problem="broken", received_at=START),
    ],
)
def test_what_nobody_can_read_is_archived(failure):
    decision = classify(evidence_of(failure))
    assert (decision.action, decision.failure_class) == (
        Action.ARCHIVE,
        FailureClass.DATA_CORRUPTION,
    )


def test_a_letter_that_may_be_forged_is_held_whatever_it_says_of_itself():
    forged = Distrusted("it was forged")
    for reason in Reason:
        decision = decide(reason=reason, target_problem=forged)
        assert (decision.action, decision.evidence) == (Action.HOLD, "it was forged")
        assert decision.failure_class is FailureClass.DATA_CORRUPTION


def test_who_looks_at_a_held_entry_is_told_why_it_cannot_be_replayed():
    decision = decide(category="client", target_problem="it is sealed")
    assert decision.action is Action.HOLD
    assert decision.evidence.startswith("client error")
    assert decision.evidence.endswith("; it cannot be replayed: it is sealed")
    assert decide(reason=Reason.REVOKED, target_problem="it is sealed").action is Action.SKIP


def test_a_letter_of_others_without_a_route_is_held_with_the_route_to_configure():
    others = {"event": None, "error_type": "", "category": "unknown", "handler": ""}
    decision = decide(**others, target_problem="name one under dlq.foreign_routes")
    assert decision.action is Action.HOLD
    assert "name one under dlq.foreign_routes" in decision.evidence


PASSES = {"category": "unknown", "error_type": "vendor.LockTimeout"}
OTHERS_PASS = {"handler_fares": fared(events=40, failed=1, handled=30)}


@pytest.mark.parametrize(
    ("known", "action"),
    [
        ({}, Action.HOLD),
        (WELL, Action.HOLD),
        (OTHERS_PASS, Action.HOLD),
        (ILL, Action.WAIT),
        (WELL | OTHERS_PASS, Action.REPLAY),
        (WELL | OTHERS_PASS | {"replay": 1, "replays": 1}, Action.HOLD),
        (WELL | OTHERS_PASS | {"handler": "vendor.sync"}, Action.HOLD),
    ],
)
def test_what_passes_by_its_name_alone_is_replayed_only_where_all_else_says_so(known, action):
    assert classifier()(evidence_of(**PASSES | known)).action is action
