"""The rules that ship: each can be reached, and no text of an outsider reaches a wrong one."""

from __future__ import annotations

import pytest
from tests.corpus.judging import evidence_of as evidence_of_line
from tests.corpus.lines import judged, read
from tests.hand_clock import START
from tests.judging import ILL, WELL, classifier, evidence_of, fared

from angzarr.analysis.entry import FailureClass, Unreadable
from angzarr.analysis.evidence import Fit
from angzarr.analysis.rule_file import built_in_rules
from angzarr.analysis.rules import decide
from angzarr.analysis.transition import Action
from angzarr.dead_letters.letter import Reason

RULES = built_in_rules()
BY_NAME = {"category": "unknown", "error_code": "", "error_type": "crm.sdk.ServiceUnavailable"}
#: What no recorded letter is in, by the rule that is meant for it.
MADE = {
    "unreadable-letter": {
        "failure": Unreadable(
            domain="order", raw=b"\x00", content_type="", problem="it is none", received_at=START
        )
    },
    "decodes-since-a-newer-release": {
        "reason": Reason.UNDELIVERABLE, "newer_release": True, "fit": Fit(fits=True),
    },
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


def test_a_body_that_another_system_could_not_fetch_is_held():
    found = classifier()(
        evidence_of(
            reason=Reason.UNDELIVERABLE, event=None, error_type="PayloadRetrievalFailed",
            error_message="S3 timed out",
        )
    )  # fmt: skip
    assert (found.action, found.failure_class) == (Action.HOLD, FailureClass.DATA_CORRUPTION)
    assert "S3 timed out" in found.evidence


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
