from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.ledger import letter_of
from tests.hand_clock import START
from tests.judging import ILL, WELL, breaker, classifier, evidence_of, fared

from angzarr.analysis.classification.rule_conditions import CONDITIONS
from angzarr.analysis.classification.rules import (
    RULES,
    PythonRule,
    built_in_rules,
    in_order,
    read,
    rules_from,
    try_all,
)
from angzarr.analysis.ledger.entry import FailureClass
from angzarr.analysis.ledger.transition import Action, EntryDecision
from angzarr.dead_letters.letter import Distrusted, Reason
from angzarr.errors import ConfigurationError
from angzarr.resilience.breaker import Phase

MOVING = {
    "name": "crm-is-moving",
    "when": {"handler": "orders.*", "error_code": ["HTTP_404", "HTTP_410"]},
    "then": {"class": "transient_ongoing", "action": "wait", "delay": 600, "say": "the CRM moves"},
}
HELD = EntryDecision(action=Action.HOLD, failure_class=FailureClass.CODE_DEFECT, evidence="mine")


def with_rule(**changes):
    return classifier([MOVING | changes])


# -- rules of a user -------------------------------------------------------------------------


def test_a_rule_of_the_user_comes_before_those_that_ship():
    decision = with_rule()(evidence_of(category="client", error_code="HTTP_404"))
    assert decision == EntryDecision(
        action=Action.WAIT,
        failure_class=FailureClass.TRANSIENT_ONGOING,
        evidence="the CRM moves",
        delay=timedelta(minutes=10),
    )


def test_all_conditions_of_a_rule_must_hold():
    decision = with_rule()(
        evidence_of(category="client", error_code="HTTP_404", handler="mail.send")
    )
    assert decision.failure_class is FailureClass.BUSINESS_REJECTION


def test_the_first_of_the_users_rules_that_fits_decides():
    first = MOVING | {"name": "first", "then": {"class": "poison", "action": "archive"}}
    decision = classifier([first, MOVING])(evidence_of(error_code="HTTP_404"))
    assert decision.failure_class is FailureClass.POISON


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"when": {"handlr": "x"}},
            "crm-is-moving .*handlr is not a condition; there are handler, ",
        ),
        ({"when": {}}, "lists at least one condition"),
        ({"when": None}, "lists at least one condition"),
        ({"when": {"category": "slow"}}, "category is one of transient, .* not 'slow'"),
        ({"when": {"replays_at_least": "three"}}, "replays_at_least is a number from 0"),
        ({"when": {"replays_at_least": True}}, "replays_at_least is a number from 0"),
        ({"when": {"newer_release": "maybe"}}, "newer_release is true, false or unknown"),
        ({"when": {"handler": []}}, "handler is a text, or a list"),
        ({"when": {"handler": 3}}, "handler is a text, or a list"),
        ({"when": {"message_matches": "(a+)+b"}}, "message_matches: .*could take too long"),
        ({"then": {"class": "odd", "action": "hold"}}, "class is one of transient_resolved"),
        ({"then": {"class": "poison"}}, "action is one of replay, wait, hold"),
        ({"then": {"class": "poison", "action": "undo"}}, "action is one of replay, wait"),
        (
            {"then": {"class": "poison", "action": "hold", "delay": 3}},
            "delay is for the actions replay and wait",
        ),
        ({"then": {"class": "poison", "action": "wait", "delay": -1}}, "delay is soon, backoff"),
        (
            {"then": {"class": "poison", "action": "wait", "delay": 10**400}},
            "delay is soon, backoff",
        ),
        (
            {"then": {"class": "poison", "action": "wait", "delay": float("nan")}},
            "delay is soon, backoff",
        ),
        ({"then": {"class": "poison", "action": "hold", "say": "{x.y}"}}, "nothing that can be"),
        ({"then": {"class": "poison", "action": "hold", "say": "{error!r}"}}, "nothing that can"),
        ({"then": {"class": "poison", "action": "hold", "say": "{"}}, "cannot be read"),
        ({"then": {"class": "poison", "action": "hold", "if": 1}}, "then has no if"),
        ({"then": None}, "then is missing"),
        ({"if": {}}, "crm-is-moving .*has no if; there are name, then, when"),
        ({"name": None}, r"test\[0\] must have a name"),
    ],
)
def test_a_rule_that_cannot_be_is_refused_in_one_sentence_that_names_it(changes, said):
    with pytest.raises(ConfigurationError, match=said) as refused:
        with_rule(**changes)
    assert "\n" not in str(refused.value)


def test_what_is_no_list_of_rules_is_refused():
    with pytest.raises(ConfigurationError, match="must be a list of rules"):
        rules_from({"name": "x"}, "rules.yaml")


def test_two_rules_of_one_name_are_refused():
    with pytest.raises(ConfigurationError, match="both call a rule 'crm-is-moving'"):
        classifier([MOVING, MOVING])
    with pytest.raises(ConfigurationError, match="both call a rule 'revoked'"):
        with_rule(name="revoked")


def test_rules_are_read_from_a_file(tmp_path):
    file = tmp_path / "rules.yaml"
    file.write_text("- name: all\n  when: always\n  then: {class: unknown, action: hold}\n")
    (rule,) = rules_from(*read(str(file), RULES))
    assert rule.name == "all"
    assert str(file) in rule.source


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- {", "not valid YAML in line"),
        ("[" * 3000, "is not valid YAML"),
        ("{a: 1}", "must hold a list"),
        ("{}", "must hold a list"),
        ("false", "must hold a list"),
        ("''", "must hold a list"),
        ("0", "must hold a list"),
        ("- 1" + "0" * 5000, "holds a value that cannot be read: "),
        (
            "- name: a\n  when: {handler: a, handler: b}",
            "has 'handler' twice in one place in line 2",
        ),
        ("- name: a\n  then: {action: hold, action: compensate}", "has 'action' twice"),
        (" " * 1_000_001, "larger than 1,000,000 bytes"),
        (None, "cannot be read"),
    ],
    ids=lambda text: str(text)[:12],
)
def test_a_file_that_holds_no_rules_is_refused_with_its_name(tmp_path, text, said):
    file = tmp_path / "rules.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigurationError, match=said) as refused:
        rules_from(*read(str(file), RULES))
    assert str(file) in str(refused.value)


def test_an_empty_file_has_no_rules_and_an_anchor_may_be_merged_and_overruled(tmp_path):
    file = tmp_path / "rules.yaml"
    file.write_text("# none yet\n")
    assert rules_from(*read(str(file), RULES)) == ()
    file.write_text(
        "- &one {name: one, when: {handler: a}, then: &hold {class: unknown, action: hold}}\n"
        "- {<<: *one, name: two, then: {<<: *hold, class: poison}}\n"
    )
    assert [rule.failure_class for rule in rules_from(*read(str(file), RULES))] == [
        FailureClass.UNKNOWN, FailureClass.POISON
    ]  # fmt: skip


# -- what no rule can do ---------------------------------------------------------------------


def always(action, **then):
    said = {"class": "transient_resolved", "action": action, "say": "mine"} | then
    return classifier([{"name": "mine", "when": "always", "then": said}])


def test_no_rule_is_asked_about_a_letter_that_may_be_forged():
    asked = []
    python = [PythonRule(name="spy", judge=lambda *seen: asked.append(seen))]
    for one in (always("replay"), classifier(python=python)):
        decision = one(evidence_of(target_problem=Distrusted("it was forged")))
        assert (decision.action, decision.evidence) == (Action.HOLD, "it was forged")
    assert asked == []


@pytest.mark.parametrize("phase", [Phase.OPEN, Phase.HALF_OPEN, Phase.ISOLATED])
def test_no_rule_replays_into_a_breaker_that_lets_nothing_through(phase):
    decision = always("replay")(evidence_of(breakers=(breaker(phase),)))
    assert decision.action is Action.WAIT
    assert f"no replay into crm {phase}" in decision.evidence


def test_no_rule_replays_while_a_breaker_ramps_up():
    decision = always("replay")(evidence_of(breakers=(breaker(ramping=True),)))
    assert decision.action is Action.WAIT


def test_no_rule_replays_beyond_the_cap_or_to_nowhere():
    assert always("replay")(evidence_of(replays=3)).action is Action.HOLD
    assert always("replay")(evidence_of(target_problem="no such queue")).action is Action.HOLD


def test_no_rule_lets_an_entry_wait_for_ever():
    day = evidence_of(now=START + timedelta(days=1))
    decision = always("wait")(day)
    assert decision.action is Action.HOLD
    assert "it waited 24 h" in decision.evidence
    assert always("wait")(evidence_of(now=START + timedelta(hours=23))).action is Action.WAIT


def test_what_has_no_replay_left_does_not_wait_for_one():
    decision = classifier()(evidence_of(replays=3, **ILL))
    assert (decision.action, decision.failure_class) == (
        Action.HOLD,
        FailureClass.TRANSIENT_ONGOING,
    )
    assert classifier(max_replays=0)(evidence_of(**ILL)).action is Action.HOLD


def test_a_wait_of_an_open_breaker_ends_in_a_persons_hands_as_well():
    decision = always("replay")(evidence_of(now=START + timedelta(days=2), **ILL))
    assert decision.action is Action.HOLD


@given(
    st.sampled_from(list(Phase)),
    st.booleans(),
    st.integers(0, 5),
    st.sampled_from(["", "no queue"]),
    st.sampled_from(["transient", "server", "unknown", "client", "of others"]),
    st.sampled_from(list(Reason)),
    st.sampled_from([None, True, False]),
    st.integers(0, 3 * 86400),
)
def test_whatever_is_known_a_replay_meets_no_open_breaker_and_no_cap(
    phase, ramping, replays, problem, category, reason, newer, age
):
    seen = evidence_of(
        breakers=(breaker(phase, ramping=ramping and phase is Phase.CLOSED),),
        replays=replays,
        target_problem=problem,
        category=category,
        reason=reason,
        newer_release=newer,
        now=START + timedelta(seconds=age),
    )
    for one in (classifier(), always("replay"), always("wait", delay="soon")):
        decision = one(seen)
        assert decision.evidence
        if decision.action is Action.REPLAY:
            assert phase is Phase.CLOSED
            assert replays < 3
            assert not problem
        if decision.action is Action.WAIT:
            assert age < 86400
            assert replays < 3


# -- rules in Python -------------------------------------------------------------------------


def test_a_rule_in_python_decides_or_leaves_it_to_the_next():
    python = [
        PythonRule(
            name="mine",
            judge=lambda letter, _seen: HELD if letter.handler == "orders.sync" else None,
        )
    ]
    classify = classifier(python=python)
    assert classify(evidence_of()).evidence == "mine"
    assert classify(evidence_of(handler="mail.send")).failure_class is not HELD.failure_class


@pytest.mark.parametrize("said", ["hold", 3, object()])
def test_what_a_rule_in_python_breaks_is_evidence_and_stops_nothing(said):
    def raising(_letter, _seen):
        raise ValueError("odd\x1b[2J")

    for judge in (raising, lambda *_seen: said):
        decision = classifier(python=[PythonRule(name="mine", judge=judge)])(evidence_of(**WELL))
        assert decision.failure_class is FailureClass.TRANSIENT_RESOLVED
        assert "rule mine failed: " in decision.evidence
        assert "\x1b" not in decision.evidence


@pytest.mark.parametrize(
    "delay", [timedelta.max, timedelta(days=31), timedelta(seconds=-1), timedelta.min, 60, None]
)
def test_a_rule_in_python_cannot_wait_longer_than_any_other_or_before_now(delay):
    said = replace(HELD, action=Action.WAIT, delay=delay)
    rule = PythonRule(name="mine", judge=lambda *_seen: said)
    decision = classifier(python=[rule])(evidence_of(**WELL))
    assert decision.failure_class is FailureClass.TRANSIENT_RESOLVED
    assert "rule mine failed: TypeError: its delay must be a timedelta from 0 to 30" in (
        decision.evidence
    )
    long = replace(said, delay=timedelta(days=30))
    judged = classifier(python=[PythonRule(name="mine", judge=lambda *_seen: long)])(evidence_of())
    assert (judged.action, judged.delay) == (Action.WAIT, timedelta(days=30))


def test_python_comes_after_the_operator_and_before_what_ships_or_where_it_says():
    written, shipped = rules_from([MOVING], "test"), built_in_rules()[:3]
    mine = PythonRule(name="mine", judge=lambda *_seen: None)
    late = PythonRule(name="late", judge=lambda *_seen: None, before=shipped[2].name)
    names = [rule.name for rule in in_order(written, [late, mine], shipped)]
    assert names == [
        MOVING["name"],
        "mine",
        shipped[0].name,
        shipped[1].name,
        "late",
        shipped[2].name,
    ]


def test_a_rule_before_one_that_is_not_there_is_refused():
    rule = PythonRule(name="mine", judge=lambda *_seen: None, before="nowhere")
    with pytest.raises(ConfigurationError, match="there is no rule 'nowhere'"):
        classifier(python=[rule])


def test_a_classifier_of_others_stands_for_the_rules_but_not_for_the_limits():
    replay = EntryDecision(
        action=Action.REPLAY, failure_class=FailureClass.CODE_DEFECT, evidence="theirs"
    )
    classify = classifier(replacement=lambda _seen: replay)
    assert classify(evidence_of(category="client")).evidence.startswith("theirs")
    assert classify(evidence_of(replays=3)).action is Action.HOLD


def test_the_rules_stand_in_for_a_classifier_that_breaks():
    def raising(_seen):
        raise KeyError("x")

    decision = classifier(replacement=raising)(evidence_of(category="client"))
    assert decision.failure_class is FailureClass.BUSINESS_REJECTION
    assert "the classifier of this app failed: KeyError" in decision.evidence


# -- what is told ----------------------------------------------------------------------------


def test_every_rule_says_why_it_did_not_fit():
    found = with_rule().explain(evidence_of(category="client", error_code="HTTP_422"))
    by_name = {tried.rule.name: tried for tried in found.tried}
    assert by_name["crm-is-moving"].why == "error_code is HTTP_422, not HTTP_404 or HTTP_410"
    decisive = next(tried for tried in found.tried if tried.verdict)
    assert decisive.rule.name == "refused"
    assert decisive.why == "category is client"
    assert found.decision == with_rule()(evidence_of(category="client", error_code="HTTP_422"))


def test_what_is_said_is_one_printable_line_of_a_bounded_length():
    said = always("hold", say="{message} {{as it is}}")(
        evidence_of(error_message="a\n\x1b[31m" + "b" * 5_000 + "{error}")
    ).evidence
    assert said.startswith("a \ufffd[31mb")
    assert said.endswith("{as it is}")
    assert len(said) < 600


@given(st.text(), st.text(), st.text(max_size=50))
def test_a_hostile_letter_is_classified_whatever_it_holds(error_type, message, stack):
    letter = letter_of(
        category=error_type[:10], error_type=error_type, error_message=message, error_stack=stack
    )
    found = classifier().explain(evidence_of(letter))
    assert found.decision.evidence.isprintable()
    assert all(tried.why.isprintable() for tried in found.tried)


def test_every_condition_is_unknown_where_nothing_is_known_and_nothing_breaks():
    bare = evidence_of(letter_of(event=None))
    assert all(isinstance(known.what, str) for known in CONDITIONS.values())
    for name, known in CONDITIONS.items():
        known.get(bare)
        assert known.what, name


def test_every_rule_that_ships_can_be_reached():
    """A rule behind one with fewer conditions of the same values would never speak."""
    rules = built_in_rules()
    for number, rule in enumerate(rules):
        asked = {condition.name: condition.wanted for condition in rule.conditions}
        for earlier in rules[:number]:
            given_before = {one.name: one.wanted for one in earlier.conditions}
            assert not given_before.items() <= asked.items(), (earlier.name, rule.name)


def test_try_all_goes_on_behind_the_rule_that_decides():
    tried = try_all(built_in_rules(), evidence_of(**WELL, group_fares=fared()))
    assert len(tried) == len(built_in_rules())
    assert tried[-1].verdict is not None
