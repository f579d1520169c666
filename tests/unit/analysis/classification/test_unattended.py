"""What is done without a person: nothing on the word of whoever may write letters."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.ledger import letter_of
from tests.hand_clock import START
from tests.judging import classifier, evidence_of

from angzarr.analysis.classification.classify import Classifier, Unattended
from angzarr.analysis.ledger.transition import Action
from angzarr.dead_letters.metadata import FULL_SIGNATURE
from angzarr.dead_letters.protection import Clearance
from angzarr.dead_letters.signing import Signatures

SIGN = Signatures(keys={"2026": b"a secret, 16 characters"}, current="2026")
MONTH = timedelta(days=30)


def rule_that(action):
    return {
        "name": "any",
        "when": {"category": "transient"},
        "then": {"class": "unknown", "action": action},
    }


def older(letter):
    """The same as a release signed it that signs less, or as somebody left it."""
    metadata = {name: value for name, value in letter.metadata.items() if name != FULL_SIGNATURE}
    return replace(letter, metadata=metadata)


def signing(**clearance) -> Classifier:
    cleared = Clearance(signatures=SIGN, **clearance)
    limit = Unattended(oldest=MONTH, vouched=cleared.vouches)
    return replace(classifier([rule_that("replay")]), unattended=limit)


@pytest.fixture(params=["replay", "wait", "compensate", "skip", "archive"])
def rule(request):
    return rule_that(request.param)


def test_a_signature_that_covers_less_decides_nothing_by_itself(rule):
    judge = replace(classifier([rule]), unattended=signing().unattended)
    whole = SIGN.sign(letter_of())
    evidence = {"undone_by": "orders.undo"}
    assert judge(evidence_of(whole, **evidence)).action is Action(rule["then"]["action"])
    held = judge(evidence_of(older(whole), **evidence))
    assert held.action is Action.HOLD
    assert "its signature does not cover its error" in held.evidence


def test_unsigned_letters_are_decided_where_that_was_said():
    assert signing(accept_unsigned=True)(evidence_of(letter_of())).action is Action.REPLAY
    assert signing()(evidence_of(letter_of())).action is Action.HOLD
    cut = older(SIGN.sign(letter_of()))
    assert signing(accept_unsigned=True)(evidence_of(cut)).action is Action.HOLD


@given(st.timedeltas(timedelta(0), timedelta(days=9000)))
def test_what_failed_long_ago_waits_for_a_person(age):
    judge = classifier([rule_that("replay")])
    decision = judge(evidence_of(letter_of(last_attempt_at=START), now=START + age))
    assert (decision.action is Action.HOLD) == (age >= MONTH)


def test_what_runs_nothing_needs_nobody_however_old(rule):
    decision = classifier([rule])(
        evidence_of(letter_of(last_attempt_at=START), now=START + MONTH, undone_by="orders.undo")
    )
    runs = rule["then"]["action"] in {"replay", "wait", "compensate"}
    assert decision.action is (Action.HOLD if runs else Action(rule["then"]["action"]))


def test_the_evidence_says_how_old_it_is():
    decision = classifier([rule_that("replay")])(
        evidence_of(letter_of(last_attempt_at=START), now=START + timedelta(days=41))
    )
    assert "it failed 41 days ago, and after 30 days a person decides" in decision.evidence
