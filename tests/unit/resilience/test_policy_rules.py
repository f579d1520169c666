"""Policy rules: the most specific one that fits decides, and the explanation says the same."""

from __future__ import annotations

import fnmatch
import itertools
import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.errors import ConfigurationError
from angzarr.resilience.category import Category
from angzarr.resilience.policies import NO_RETRY, POLICIES
from angzarr.resilience.policy_rules import (
    ORDER,
    PolicyCase,
    PolicyRule,
    PolicyRules,
    explain,
    policy_rules,
    ranked,
)

SECOND = timedelta(seconds=1)

HANDLERS = ["shop.mail.send", "shop.mail.bounce", "shop.crm.sync", "x"]
TYPES = ["OrderPlaced", "OrderPaid", "Viewed"]
SPANS = [10 * SECOND, 60 * SECOND]
#: Values that conditions are drawn from, so that rules often fit.
VALUES: dict[str, list[Any]] = {
    "handler": [*HANDLERS, "shop.*", "shop.mail.*", "*.sync", "*", "?", "shop.????.send"],
    "operation": ["webhook", "mail"],
    "event_type": [*TYPES, "Order*", "*", "O*"],
    "tenant": ["acme", "globex"],
    "category": [Category.TRANSIENT, Category.EXTERNAL],
    "domain": ["order", "billing"],
    "priority": ["realtime", "background", "default"],
    "time_left": SPANS,
}

conditions = st.fixed_dictionaries(
    {}, optional={name: st.sampled_from(values) for name, values in VALUES.items()}
).filter(bool)
rules_said = st.lists(
    conditions, max_size=8, unique_by=lambda said: tuple(said.get(name) for name in ORDER)
).flatmap(
    lambda said: st.tuples(*(st.sampled_from(sorted(POLICIES)).map(_with(one)) for one in said))
)
cases = st.builds(
    PolicyCase,
    handler=st.sampled_from(HANDLERS),
    operation=st.sampled_from([None, "webhook", "mail"]),
    event_type=st.sampled_from(TYPES),
    tenant=st.sampled_from([None, "acme", "globex"]),
    category=st.sampled_from([None, Category.TRANSIENT, Category.EXTERNAL, Category.CLIENT]),
    domain=st.sampled_from([None, "order", "billing"]),
    priority=st.sampled_from(["realtime", "background", "default"]),
    time_left=st.sampled_from([None, -SECOND, SECOND, 10 * SECOND, 30 * SECOND, 90 * SECOND]),
)


def _with(said: dict[str, Any]) -> Any:
    return lambda policy: {"policy": policy, **said}


def chosen(rules: PolicyRules, case: PolicyCase, own: str | None = None) -> PolicyRule:
    """Return the rule that decides."""
    said = rules.of(case.handler, operation=case.operation, own=own and POLICIES[own])  # type: ignore[arg-type]
    return next(tried.rule for tried in explain(said, case) if tried.missed is None)


def name_for(*said: dict[str, Any], own: str | None = None, **case: Any) -> str:
    return chosen(policy_rules(POLICIES, rules=said), PolicyCase(**case), own).policy.name


def fits(said: dict[str, Any], case: PolicyCase) -> bool:
    """Say independently whether a rule of the settings fits."""
    for name, wanted in said.items():
        found = getattr(case, name, None)
        if name == "time_left":
            if found is None or found >= wanted:
                return False
        elif name in ("handler", "event_type"):
            if not fnmatch.fnmatchcase(found, wanted):  # type: ignore[type-var]
                return False
        elif name != "policy" and found != wanted:
            return False
    return True


def says_more(one: dict[str, Any], other: dict[str, Any]) -> int:
    """Compare two rules by the documented order: 1, 0 or -1."""
    for name in ORDER:
        mine, yours = (_grade(name, said.get(name)) for said in (one, other))
        if mine != yours:
            return 1 if mine > yours else -1
    return 0


def _grade(name: str, wanted: Any) -> tuple[float, ...]:
    if wanted is None:
        return (0,)
    if name == "time_left":
        return (1, -wanted.total_seconds())
    if name in ("handler", "event_type") and set("*?") & set(wanted):
        return (1, len(wanted) - wanted.count("*") - wanted.count("?"))
    return (1, math.inf)


# -- which one wins -------------------------------------------------------------------------


@given(rules_said, cases)
def test_no_rule_that_fits_is_more_specific_than_the_one_that_decides(said, case):
    winner = chosen(policy_rules(POLICIES, rules=said), case)
    won = {name: getattr(winner, name) for name in ORDER if getattr(winner, name) is not None}
    fitting = [one for one in said if fits(one, case)]
    assert all(says_more(one, won) <= 0 for one in fitting)
    if winner.by_operator:
        assert fits(won, case)


@given(rules_said, cases, st.randoms())
def test_the_order_of_the_list_decides_between_equals_only(said, case, chance):
    shuffled = list(said)
    chance.shuffle(shuffled)
    one, other = (chosen(policy_rules(POLICIES, rules=rules), case) for rules in (said, shuffled))
    if one.weight != other.weight:
        pytest.fail("the order of the list chose between rules that are not alike")
    ties = [
        rule for rule in policy_rules(POLICIES, rules=said).general if rule.weight == one.weight
    ]
    if len([rule for rule in ties if rule.missed(case) is None]) == 1:
        assert one.policy is other.policy


@given(rules_said, cases, st.sampled_from([None, "crm_sync"]), st.booleans())
def test_the_plan_of_a_handler_chooses_what_the_explanation_says(said, case, own, owns_domain):
    rules = policy_rules(POLICIES, rules=said)
    plan = rules.plan(
        case.handler,
        operation=case.operation,
        domain=case.domain if owns_domain else None,
        own=own and POLICIES[own],
    )
    quick = plan.quick(case.priority)
    assert plan.choose(case) is chosen(rules, case, own).policy
    assert quick in (None, plan.choose(case))


def test_without_rules_nothing_but_the_priority_is_asked():
    plan = policy_rules(POLICIES).plan("h")
    assert [plan.quick(p).name for p in ("realtime", "background", "default", "urgent")] == [  # type: ignore[union-attr]
        "realtime", "background", "default", "default",
    ]  # fmt: skip
    assert policy_rules(POLICIES).plan("h", own=NO_RETRY).quick("realtime") is NO_RETRY


#: Each is more specific than those behind it; all fit.
LADDER: list[dict[str, Any]] = [
    {"handler": "shop.mail.send"},
    {"handler": "shop.mail.*"},
    {"handler": "shop.*"},
    {"handler": "*"},
    {"operation": "webhook"},
    {"event_type": "OrderPlaced"},
    {"event_type": "Order*"},
    {"tenant": "acme"},
    {"category": Category.EXTERNAL},
    {"domain": "order"},
    {"priority": "realtime"},
    {"time_left": 20 * SECOND},
    {"time_left": 60 * SECOND},
]
ALL = PolicyCase(
    handler="shop.mail.send", operation="webhook", event_type="OrderPlaced", tenant="acme",
    category=Category.EXTERNAL, domain="order", priority="realtime", time_left=10 * SECOND,
)  # fmt: skip


def test_conditions_weigh_in_the_documented_order():
    names = itertools.cycle(sorted(POLICIES))
    said = [{"policy": next(names), **one} for one in LADDER]
    order = [
        tried.rule
        for tried in explain(policy_rules(POLICIES, rules=reversed(said)).of("shop.mail.send"), ALL)
        if tried.rule.by_operator
    ]
    assert [{c.name: c.wanted for c in rule.conditions} for rule in order] == LADDER
    assert all(rule.missed(ALL) is None for rule in order)


def test_one_weightier_condition_beats_all_lighter_ones_together():
    lighter = {name: getattr(ALL, name) for name in ORDER[2:-1]} | {"time_left": 20 * SECOND}
    assert name_for(
        {"policy": "webhook", "operation": "webhook"}, {"policy": "crm_sync", **lighter},
        **ALL._asdict(),
    ) == "webhook"  # fmt: skip


def test_of_two_rules_that_are_as_specific_the_later_wins():
    one, other = {"policy": "webhook", "handler": "a*"}, {"policy": "crm_sync", "handler": "*b"}
    assert name_for(one, other, handler="ab") == "crm_sync"
    assert name_for(other, one, handler="ab") == "webhook"


# -- what code says is rules, too -----------------------------------------------------------


def test_code_says_the_handler_then_the_operation_then_the_priority_then_the_default():
    case = {"handler": "h", "operation": "webhook", "priority": "realtime"}
    assert name_for(own="crm_sync", **case) == "crm_sync"
    assert name_for(**case) == "webhook"
    assert name_for(handler="h", priority="realtime") == "realtime"
    assert name_for(handler="h", priority="background") == "background"
    assert name_for(handler="h") == "default"
    assert (
        chosen(policy_rules(POLICIES, "webhook"), PolicyCase(handler="h")).policy.name == "webhook"
    )


@pytest.mark.parametrize("priority", ["default", "urgent", "webhook", ""])
def test_a_messages_odd_priority_gets_the_default(priority):
    assert name_for(handler="h", priority=priority) == "default"


def test_an_operator_overrides_what_code_says_without_a_deploy():
    case = {"handler": "h", "operation": "webhook", "priority": "realtime"}
    mine = {"policy": "no_retry"}
    assert name_for({**mine, "handler": "h"}, own="crm_sync", **case) == "no_retry"
    assert name_for({**mine, "operation": "webhook"}, **case) == "no_retry"
    assert (
        name_for({**mine, "priority": "realtime"}, handler="h", priority="realtime") == "no_retry"
    )
    assert name_for({**mine, "handler": "*"}, own="crm_sync", **case) == "crm_sync"
    assert name_for({**mine, "operation": "webhook"}, own="crm_sync", **case) == "crm_sync"


BY_TYPE = {"OrderPlaced": POLICIES["webhook"], "OrderPaid": NO_RETRY}


def of_type(event_type: str, *said: dict[str, Any], own: str | None = "crm_sync") -> str:
    """Return the policy of an event of a handler that names some by type, however it is asked."""
    mine = None if own is None else POLICIES[own]
    rules = policy_rules(POLICIES, rules=said)
    case = PolicyCase(handler="h", event_type=event_type, tenant="acme")
    tried = explain(rules.of("h", own=mine, by_type=BY_TYPE), case)
    plan = rules.plan("h", own=mine, by_type=BY_TYPE)
    policy = plan.quick("default") or plan.choose(case)
    assert policy is next(one.rule for one in tried if one.missed is None).policy
    return policy.name


def test_a_handler_says_a_type_of_event_before_all_others():
    assert of_type("OrderPlaced") == "webhook"
    assert of_type("OrderPaid") == "no_retry"
    assert of_type("OrderShipped") == "crm_sync"
    assert of_type("OrderShipped", own=None) == "default"


def test_an_operator_who_names_the_handler_overrides_its_word_on_a_type_too():
    assert of_type("OrderPlaced", {"policy": "realtime", "handler": "h"}) == "realtime"
    named = {"policy": "realtime", "handler": "h", "event_type": "OrderPlaced"}
    assert [of_type(one, named) for one in ("OrderPlaced", "OrderPaid")] == ["realtime", "no_retry"]
    for less in ({"handler": "*"}, {"event_type": "OrderPlaced"}, {"tenant": "acme"}):
        assert of_type("OrderPlaced", {"policy": "realtime", **less}) == "webhook"


def test_an_operation_may_be_known_by_a_rule_instead_of_a_policy():
    rules = policy_rules(POLICIES, rules=[{"policy": "webhook", "operation": "mail"}])
    rules.check_operation("mail")
    rules.check_operation("webhook")
    with pytest.raises(ConfigurationError, match="no backoff policy 'post'"):
        rules.check_operation("post")
    assert chosen(rules, PolicyCase(handler="h", operation="mail")).policy.name == "webhook"


# -- what a condition means -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "text", "holds"),
    [
        ("shop.*", "shop.mail", True),
        ("shop.*", "shopXmail", False),
        ("shop.*", "my.shop.mail", False),
        ("*", "", True),
        ("h?", "h1", True),
        ("h?", "h", False),
        ("Page[Order]", "Page[Order]", True),
        ("Page[Order]", "PageO", False),
        ("a+", "aa", False),
        ("*", "two\nlines", True),
    ],
)
def test_a_pattern_is_a_whole_name_with_stars_and_question_marks(pattern, text, holds):
    rule = PolicyRule(policy=NO_RETRY, source="s", event_type=pattern)
    assert (rule.missed(PolicyCase(event_type=text)) is None) is holds


def test_time_left_holds_while_less_is_left_and_only_where_there_is_a_deadline():
    rule = PolicyRule(policy=NO_RETRY, source="s", time_left=10 * SECOND)
    fitting = [left for left in (-SECOND, 9 * SECOND, 10 * SECOND, None)
               if rule.missed(PolicyCase(time_left=left)) is None]  # fmt: skip
    assert fitting == [-SECOND, 9 * SECOND]


def test_a_category_holds_once_there_is_an_error():
    rule = {"policy": "no_retry", "category": Category.EXTERNAL}
    assert name_for(rule, handler="h") == "default"
    assert name_for(rule, handler="h", category=Category.EXTERNAL) == "no_retry"
    assert name_for(rule, handler="h", category=Category.SERVER) == "default"


def test_an_explanation_names_the_first_condition_that_was_missed():
    rule = PolicyRule(policy=NO_RETRY, source="s", handler="h", tenant="a", time_left=SECOND)
    missed = [rule.missed(case) for case in (
        PolicyCase(handler="x"), PolicyCase(handler="h"), PolicyCase(handler="h", tenant="a"),
        PolicyCase(handler="h", tenant="a", time_left=SECOND / 2),
    )]  # fmt: skip
    assert [one and str(one) for one in missed] == [
        "handler h", "tenant a", "time_left < 1 s", None,
    ]  # fmt: skip


# -- what is refused ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        (
            [{"policy": "webhok", "tenant": "a"}],
            r"retry.rules\[0\]: there is no backoff policy 'web",
        ),
        ([{"policy": "webhook"}], r"retry.rules\[0\] has no condition: set retry.default instead"),
        ([{"policy": "webhook", "handler": ""}], r"retry.rules\[0\]: handler cannot be ''"),
        ([{"policy": "webhook", "event_type": "[ab]*"}], r"event_type cannot be '\[ab\]\*'"),
        (
            [
                {"policy": "webhook", "tenant": "a", "priority": "realtime"},
                {"policy": "webhook", "tenant": "b"},
                {"policy": "no_retry", "priority": "realtime", "tenant": "a"},
            ],
            r"rules\[0\] and .*\[2\] have the same conditions \(tenant a, priority realtime\)",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_by_rule(rules, said):
    with pytest.raises(ConfigurationError, match=said):
        policy_rules(POLICIES, rules=rules)


def test_an_unknown_default_is_refused():
    with pytest.raises(ConfigurationError, match="'webhok'; known are"):
        policy_rules(POLICIES, "webhok")


@given(st.permutations(range(4)))
def test_ranking_puts_the_operators_word_before_codes_and_the_later_before_the_earlier(order):
    made = [
        PolicyRule(policy=NO_RETRY, source=str(n), handler="h", by_operator=n >= 2) for n in order
    ]
    told = [rule.source for rule in ranked(made)]
    assert {int(source) >= 2 for source in told[:2]} == {True}
    operators = [str(n) for n in order if n >= 2]
    assert told[:2] == operators[::-1]
