from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.ledger import letter_of
from tests.hand_clock import START
from tests.judging import evidence_of

from angzarr.analysis.classification import rules as sieve
from angzarr.analysis.classification.evidence import Evidence
from angzarr.analysis.classification.rules import PythonRule, RuleIndex, built_in_rules, decide
from angzarr.analysis.ledger.failure import Unreadable
from angzarr.dead_letters.letter import Reason

RULES = built_in_rules()
FIELDS = {
    "reason": [Reason.EXHAUSTED, Reason.UNDELIVERABLE, Reason.POISON],
    "category": ["transient", "validation", "unknown", "server"],
    "error_type": ["", "KeyError", "shop.GiveUp", "MemoryError"],
    "error_code": ["", "HTTP_503", "SQLSTATE_28000", "TIME_LIMIT", "ENOENT", "RABBITMQ_EXPIRED"],
    "error_message": ["", "certificate has expired", "who knows"],
}


@st.composite
def alike(draw):
    """Letters that differ in one thing."""
    common = {name: draw(st.sampled_from(values)) for name, values in FIELDS.items()}
    name = draw(st.sampled_from(sorted(FIELDS)))
    return [letter_of(**{**common, name: value}) for value in FIELDS[name]]


@given(alike())
def test_a_sieve_leaves_out_nothing_that_would_decide(letters):
    mine = RuleIndex(RULES)
    for letter in letters * 2:  # the second time it is remembered
        evidence = evidence_of(letter)
        assert decide(mine.rules_for(evidence), evidence) == decide(RULES, evidence)


def test_most_rules_are_left_out_and_alike_failures_share_the_rest():
    mine = RuleIndex(RULES)
    first = mine.rules_for(evidence_of(letter_of("e1", category="transient")))
    assert len(first) < len(RULES) / 2
    assert mine.rules_for(evidence_of(letter_of("e2", category="transient"))) is first


def test_rules_in_python_are_always_tried():
    rule = PythonRule(name="mine", judge=lambda _letter, _evidence: None)
    raw = Unreadable(
        domain="order", raw=b"x", content_type="", problem="no letter", received_at=START
    )
    for evidence in (evidence_of(letter_of()), Evidence(failure=raw)):
        assert rule in RuleIndex([*RULES, rule]).rules_for(evidence)


def test_what_hostile_letters_make_it_remember_is_bounded(monkeypatch):
    monkeypatch.setattr(sieve, "_MOST", 3)
    mine = RuleIndex(RULES)
    for number in range(20):
        evidence = evidence_of(letter_of(error_type=f"E{number}"))
        assert decide(mine.rules_for(evidence), evidence) == decide(RULES, evidence)
        assert len(mine._left) <= 3
    before = dict(mine._left)
    mine.rules_for(evidence_of(letter_of(error_code="x" * 2_000)))
    assert mine._left == before
