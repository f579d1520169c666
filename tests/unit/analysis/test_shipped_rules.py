"""The rules that ship: each can be reached, and no text of an outsider reaches a wrong one."""

from __future__ import annotations

import pytest
from tests.contracts.ledger import unreadable_message
from tests.hand_clock import START
from tests.judging import ILL, WELL, classifier, evidence_of, fared
from tools.corpus.judging import evidence_of as evidence_of_line
from tools.corpus.lines import judged, read

from angzarr.analysis.classification.evidence import Fit
from angzarr.analysis.classification.rules import built_in_rules, decide
from angzarr.analysis.ledger.entry import FailureClass
from angzarr.analysis.ledger.failure import Unreadable
from angzarr.analysis.ledger.transition import Action
from angzarr.dead_letters.letter import Mismatch, Reason
from angzarr.dead_letters.record import ForeignRecord
from angzarr.events.headers import EVENT_ID

RULES = built_in_rules()
BY_NAME = {"category": "unknown", "error_code": "", "error_type": "crm.sdk.ServiceUnavailable"}
#: What no recorded letter is in, by the rule that is meant for it.
MADE = {
    "key-of-its-body-missing": {
        "reason": Reason.UNDELIVERABLE, "error_type": "angzarr.errors.PayloadKeyMissing",
        "error_code": "PAYLOAD_KEY",
    },
    "body-lost-elsewhere": {
        "reason": Reason.UNDELIVERABLE, "error_type": "PayloadRetrievalFailed",
        "error_message": "object not found", "event": None,
    },
    "body-out-of-reach": {
        "reason": Reason.UNDELIVERABLE, "error_type": "PayloadRetrievalFailed",
        "error_message": "timed out", "event": None,
    },
    "body-out-of-reach-without-target": {
        "reason": Reason.UNDELIVERABLE, "error_type": "PayloadRetrievalFailed",
        "error_message": "timed out", "event": None, "target_problem": "no route",
    },
    "stale-command-of-others": {
        "reason": Reason.SEQUENCE_MISMATCH, "event": None, "mismatch": Mismatch(3, 5, 3),
    },
    "record-of-another-system": {
        "failure": Unreadable(
            domain="order", raw=b"", content_type="", problem="it is none", received_at=START,
            record=ForeignRecord(broker="kafka", headers=(("__connect.errors.topic", b"t"),)),
        )
    },
    "unreadable-letter": {
        "failure": Unreadable(
            domain="order", raw=b"\x00", content_type="", problem="it is none", received_at=START
        )
    },
    "decodes-since-a-newer-release": {
        "reason": Reason.UNDELIVERABLE, "newer_release": True, "fit": Fit(fits=True),
    },
    "nobody-could-take-it": {"reason": Reason.UNDELIVERABLE, "error_code": "NOT_TAKEN"},
    "unreadable-event": {"failure": unreadable_message(**{EVENT_ID: "e"})},
    "task-of-a-newer-release": {
        "reason": Reason.UNDELIVERABLE, "error_code": "UNKNOWN_TASK", "newer_release": True,
    },
    "task-unknown-there": {"reason": Reason.UNDELIVERABLE, "error_code": "UNKNOWN_TASK"},
    "stale-command": {
        "reason": Reason.SEQUENCE_MISMATCH, "error_type": "angzarr.errors.SequenceMismatch",
        "mismatch": Mismatch(3, 5, 3),
    },
    "compensation-failed": {
        "reason": Reason.COMPENSATION, "error_type": "angzarr.errors.CompensationFailed",
    },
    # of a library, or of an angzarr before it gave the reason
    "sequence-mismatch": {"error_type": "eventstore.SequenceConflictError"},
    "a-refusal-that-may-pass": {"error_code": "HTTP_423", "category": "client"},
    "dependency-well-and-failed-again": {"category": "transient", "replay": 1, **WELL},
    "lost-a-race": {"error_code": "GRPC_ABORTED", "category": "unknown"},
    "passes-by-its-name-while-ill": {**BY_NAME, **ILL},
    "passed-by-its-name": {**BY_NAME, **WELL, "handler_fares": fared(9, 1, 8)},
    "may-pass-by-its-name": BY_NAME,
    "not-let-in-by-its-name": {**BY_NAME, "error_type": "crm.sdk.AuthError"},
    "payload-does-not-fit": {**BY_NAME, "error_type": "KeyError", "fit": Fit(fits=False)},
    "keys-of-two-kinds": {**BY_NAME, "error_type": "x.Y", "error_code": "REDIS_WRONGTYPE"},
    "value-of-one-event": {
        **BY_NAME, "error_type": "ValueError", "group_fares": fared(1), "error_message": "odd",
    },
}  # fmt: skip


def rule_of(evidence):
    verdict, broken = decide(RULES, evidence)
    assert not broken
    return verdict.rule if verdict else ""


def test_each_rule_decides_about_a_recorded_letter_or_one_made_for_it():
    """A rule that another one always forestalls is a promise that nobody keeps."""
    reached = {rule_of(evidence_of_line(line)) for line in judged(read())}
    made = {name: rule_of(evidence_of(**known)) for name, known in MADE.items()}
    assert made == {name: name for name in MADE}
    assert not {rule.name for rule in RULES} - reached - made.keys()


@pytest.mark.parametrize("strategy", ["STRICT", "MANUAL"])
def test_a_stale_command_is_held_with_what_it_expected_and_what_helps(strategy):
    known = {
        "reason": Reason.SEQUENCE_MISMATCH,
        "mismatch": Mismatch(3, 5, 1 + 2 * (strategy == "MANUAL")),
    }
    found = classifier()(evidence_of(**known, error_type="angzarr.errors.SequenceMismatch"))
    assert (found.action, found.failure_class) == (Action.HOLD, FailureClass.SEQUENCE_CONFLICT)
    assert found.evidence == (
        f"expected sequence 3, the aggregate is at 5 ({strategy}):"
        " replay it with a fresh sequence, or as it is"
    )


def test_a_stale_command_whose_details_were_lost_still_says_what_its_error_says():
    said = "expected sequence 3, the aggregate is at 5"
    found = classifier()(evidence_of(reason=Reason.SEQUENCE_MISMATCH, error_message=said))
    assert found.evidence.startswith(f"{said}: replay it")


def test_a_stale_command_that_merges_strictly_is_a_conflict_too():
    said = "Pay expects player/p1 at 3, it is at 5 (STRICT)"
    found = classifier()(
        evidence_of(
            reason=Reason.REFUSED, error_type="angzarr.errors.CommandAbortedError",
            error_message=said, category="client",
        )
    )  # fmt: skip
    assert (found.action, found.failure_class) == (Action.HOLD, FailureClass.SEQUENCE_CONFLICT)
    assert said in found.evidence


def test_a_compensation_that_failed_is_held_for_a_person():
    """Nothing but a person knows what is left half done; a replay by itself might undo it twice."""
    found = classifier()(
        evidence_of(
            reason=Reason.COMPENSATION, error_type="angzarr.errors.CompensationFailed",
            category="transient", explanation="nothing undid OrderPlaced", **WELL,
        )
    )  # fmt: skip
    assert (found.action, found.failure_class) == (Action.HOLD, FailureClass.BUSINESS_REJECTION)
    assert "nothing undid OrderPlaced" in found.evidence


@pytest.mark.parametrize(
    ("message", "target", "action", "failure_class"),
    [
        ("S3 timed out", "", Action.REPLAY, FailureClass.TRANSIENT_ONGOING),
        ("503 Slow Down", "", Action.REPLAY, FailureClass.TRANSIENT_ONGOING),
        ("S3 timed out", "no route", Action.HOLD, FailureClass.TRANSIENT_ONGOING),
        ("", "no route", Action.HOLD, FailureClass.TRANSIENT_ONGOING),
        ("Object not found", "", Action.HOLD, FailureClass.DATA_CORRUPTION),
        ("NoSuchKey", "", Action.HOLD, FailureClass.DATA_CORRUPTION),
        ("content hash mismatch", "no route", Action.HOLD, FailureClass.DATA_CORRUPTION),
    ],
)
def test_a_body_that_another_system_could_not_fetch_may_be_an_outage(
    message, target, action, failure_class
):
    found = classifier()(
        evidence_of(
            reason=Reason.UNDELIVERABLE, event=None, error_type="PayloadRetrievalFailed",
            error_message=message, target_problem=target,
        )
    )  # fmt: skip
    assert (found.action, found.failure_class) == (action, failure_class)
    assert message in found.evidence


@pytest.mark.parametrize("known", [{"event": None}, {"target_problem": "no route"}])
def test_a_stale_command_that_no_replay_can_send_is_told_without_advice(known):
    stale = {"reason": Reason.SEQUENCE_MISMATCH, "mismatch": Mismatch(3, 5, 3)}
    found = classifier()(evidence_of(**stale, **known))
    assert "replay it with" not in found.evidence
    assert "expected sequence 3" in found.evidence
    assert "replay it with" in classifier()(evidence_of(**stale)).evidence


@pytest.mark.parametrize(
    "text",
    [
        "authentication failed", "not authorized", "access denied for user", "unknown database",
        "unknown command", "invalid value for configuration property", "self-signed certificate",
        "certificate has expired", "getaddrinfo failed", "name or service not known",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("error_type", "error_code"),
    [
        ("requests.exceptions.HTTPError", "HTTP_503"),
        ("requests.exceptions.ConnectionError", "CONNECTION"),
        ("shop.PaymentPending", "UNKNOWN"),
    ],
)
def test_what_anybody_may_write_into_an_address_holds_no_event(text, error_type, error_code):
    said = f"503 Server Error for url: http://crm/orders?note={text}"
    known = {"category": "transient", "error_type": error_type, "error_code": error_code}
    found = classifier()(evidence_of(error_message=said, **known, **WELL))
    assert (found.action, found.failure_class) == (
        Action.REPLAY, FailureClass.TRANSIENT_RESOLVED
    )  # fmt: skip
