from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.ledger import letter_of
from tests.hand_clock import START
from tests.judging import breaker, evidence_of, fared

from angzarr.analysis.classification import verdict_memo
from angzarr.analysis.classification.evidence import SAID, Evidence, Fit
from angzarr.analysis.classification.rule_conditions import CONDITIONS, RuleCondition
from angzarr.analysis.classification.rules import PythonRule, WrittenRule, built_in_rules, decide
from angzarr.analysis.classification.verdict_memo import VerdictMemo
from angzarr.analysis.ledger.entry import FailureClass
from angzarr.analysis.ledger.failure import Unreadable
from angzarr.analysis.ledger.transition import Action
from angzarr.dead_letters.letter import Distrusted, Mismatch, NoTarget, Reason
from angzarr.resilience.breaker import Phase

LETTER = letter_of(error_type="orders.Refused", error_message="no", error_stack="")
OUR_FRAME = '  File "/app/orders/sync.py", line 3, in sync\n'
BASE = evidence_of(LETTER)


def letter(**fields):
    return {"failure": replace(LETTER, **fields)}


def event(**fields):
    return letter(event=replace(LETTER.event, **fields))


#: Each differs from `BASE` in one thing that a rule may see.
OTHERS = [
    *(
        letter(**{name: f"another {name}"})
        for name in (
            "domain", "handler", "category", "error_type", "error_code", "error_message",
            "explanation", "version", "component_type",
        )
    ),
    letter(error_stack=OUR_FRAME),
    letter(reason=Reason.POISON),
    letter(replay=1),
    letter(mismatch=Mismatch(3, 4, 1)),
    letter(event=None),
    event(type="AnotherType"),
    event(tenant_id="t2"),
    letter(message=replace(LETTER.message, headers={})),
    {"replays": 2},
    *({"target_problem": kind("it cannot be")} for kind in (str, NoTarget, Distrusted)),
    {"breakers": (breaker(Phase.OPEN),)},
    {"breakers": (breaker(calls=10, failures=5),)},
    {"handler_fares": fared(events=30, failed=25)},
    {"handler_fares": fared(handled=9)},
    {"group_fares": fared(events=9, failed=7)},
    {"group_fares": fared(handled=9)},
    {"newer_release": True},
    {"fit": Fit(fits=False, why="it lacks a total")},
    {"now": START + timedelta(days=3)},
]  # fmt: skip
KNOWN = [BASE, *(evidence_of(**{"failure": LETTER, **fields}) for fields in OTHERS)]
#: Only bytes that are no letter have it, and those are never remembered.
NEVER = {"given_up_by"}


def rule(name, conditions=(), saying="it is so"):
    return WrittenRule(
        name=name,
        source="test",
        conditions=conditions,
        failure_class=FailureClass.UNKNOWN,
        action=Action.HOLD,
        saying=saying,
    )


def as_in_base(name):
    """A rule that fits what is in this respect as `BASE` is."""
    get = CONDITIONS[name].get
    return rule(name, (RuleCondition(name, "", get, lambda value: value == get(BASE)),))


RULES = {f"when {name}": as_in_base(name) for name in CONDITIONS.keys() - NEVER} | {
    f"say {name}": rule(name, saying=f"it is {{{name}}}") for name in SAID
}


@pytest.mark.parametrize("name", sorted(RULES))
def test_whatever_a_rule_may_see_is_told_apart(name):
    rules, told_apart = [RULES[name]], False
    for other in KNOWN[1:]:
        memo = VerdictMemo(rules)
        assert memo.find(BASE) == decide(rules, BASE)
        assert memo.find(other) == decide(rules, other)
        told_apart |= decide(rules, other) != decide(rules, BASE)
    assert told_apart, "nothing in KNOWN differs in it"


@given(st.lists(st.sampled_from(KNOWN), min_size=1, max_size=12))
def test_rules_that_ship_say_the_same_of_each(evidences):
    memo, rules = VerdictMemo(built_in_rules()), built_in_rules()
    assert [memo.find(one) for one in evidences] == [decide(rules, one) for one in evidences]


def counting(monkeypatch):
    asked = []

    def ask(rules, evidence):
        asked.append(evidence)
        return decide(rules, evidence)

    monkeypatch.setattr(verdict_memo, "decide", ask)
    return asked


def test_alike_failures_are_asked_about_once(monkeypatch):
    asked, memo = counting(monkeypatch), VerdictMemo(built_in_rules())
    for number in range(20):
        memo.find(evidence_of(letter_of(f"e{number}")))
    assert len(asked) == 1


def test_a_rule_in_python_is_asked_about_each(monkeypatch):
    asked = counting(monkeypatch)
    mine = PythonRule(name="mine", judge=lambda _letter, _evidence: None)
    memo = VerdictMemo([mine, *built_in_rules()])
    memo.find(BASE)
    memo.find(BASE)
    assert len(asked) == 2


def test_bytes_that_are_no_letter_are_not_remembered(monkeypatch):
    asked, memo = counting(monkeypatch), VerdictMemo(built_in_rules())
    raw = Unreadable(
        domain="order", raw=b"x", content_type="", problem="no letter", received_at=START
    )
    assert memo.find(Evidence(failure=raw)) == memo.find(Evidence(failure=raw))
    assert len(asked) == 2


def test_what_hostile_letters_make_it_remember_is_bounded(monkeypatch):
    monkeypatch.setattr(verdict_memo, "_MOST", 3)
    memo = VerdictMemo(built_in_rules())
    for number in range(20):
        memo.find(evidence_of(letter_of(error_type=f"E{number}")))
        assert len(memo._known) <= 3
    before = dict(memo._known)
    for large in (letter(error_stack="x" * 20_000), event(tenant_id="x" * 20_000)):
        memo.find(evidence_of(**large))
    assert memo._known == before
