"""Policy rules: which policy a delivery gets, by the most specific rule that fits (spec D3). Pure.

What code says is rules, too: a handler's own policy, its operation's, those of priorities, and the
default. Rules of the settings come before those of code that are as specific, so that an operator
has the last word without a deploy.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from operator import eq
from typing import Any, Final, NamedTuple

from angzarr.errors import ConfigurationError
from angzarr.resilience.backoff import Policy
from angzarr.resilience.category import Category
from angzarr.resilience.policies import named

#: The conditions of a rule, the weightiest first: a rule is more specific than another if it says
#: more on the first of these on which they differ, whatever it says on those that follow.
ORDER: Final = (
    "handler", "operation", "event_type", "tenant", "category", "domain", "priority", "time_left",
)  # fmt: skip


class PolicyCase(NamedTuple):
    """What a policy is chosen by. None, and an empty text: there is none, or it is not known."""

    handler: str = ""
    operation: str | None = None
    event_type: str = ""
    tenant: str | None = None
    #: Known once a run failed.
    category: Category | None = None
    domain: str | None = None
    priority: str = "default"
    #: Until the message expires; None: it does not.
    time_left: timedelta | None = None


class PolicyCondition(NamedTuple):
    """What a rule asks of one part of a case."""

    name: str
    wanted: Any
    fits: Callable[[Any], bool]

    def __str__(self) -> str:
        if self.name == "time_left":
            return f"time_left < {self.wanted.total_seconds():g} s"
        return f"{self.name} {self.wanted}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRule:
    """Give `policy` where all conditions hold; None: no condition.

    `handler` and `event_type` may be patterns: ``*`` is any text, ``?`` one character. `time_left`
    holds while less than that is left until the message expires. Raises ConfigurationError for a
    pattern that cannot be one.
    """

    policy: Policy
    #: Who said it, for people: ``retry.rules[2]``.
    source: str
    by_operator: bool = False
    #: Whether the handler itself says it: then no other condition makes it more specific, so that
    #: an operator who names the handler overrides all that it says.
    by_handler: bool = False
    handler: str | None = None
    operation: str | None = None
    event_type: str | None = None
    tenant: str | None = None
    category: Category | None = None
    domain: str | None = None
    priority: str | None = None
    time_left: timedelta | None = None
    conditions: tuple[PolicyCondition, ...] = field(init=False, compare=False)
    #: Compared as a tuple; the greater is the more specific.
    weight: tuple[float, ...] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        asked = [(name, getattr(self, name)) for name in ORDER]
        conditions = (_condition(self.source, *one) for one in asked if one[1] is not None)
        object.__setattr__(self, "conditions", tuple(conditions))
        weighed = ("handler",) if self.by_handler else ORDER
        weight = (_weight(name, wanted if name in weighed else None) for name, wanted in asked)
        object.__setattr__(self, "weight", tuple(weight))

    def missed(self, case: PolicyCase) -> PolicyCondition | None:
        """The first condition that does not hold of *case*, or None: the rule fits."""
        for condition in self.conditions:
            if not condition.fits(getattr(case, condition.name)):
                return condition
        return None


def _condition(source: str, name: str, wanted: Any) -> PolicyCondition:
    if name == "time_left":
        return PolicyCondition(name, wanted, lambda left: left is not None and left < wanted)
    if name not in _MAY_BE_PATTERNS:
        return PolicyCondition(name, wanted, partial(eq, wanted))
    if not wanted or (_is_pattern(wanted) and set(wanted) & set("[]")):
        msg = (
            f"{source}: {name} cannot be {wanted!r}: use a name, or a pattern with *"
            " text and ? one character, without brackets"
        )
        raise ConfigurationError(msg)
    if not _is_pattern(wanted):
        return PolicyCondition(name, wanted, partial(eq, wanted))
    parts = ({"*": ".*", "?": "."}.get(c) or re.escape(c) for c in wanted)
    fullmatch = re.compile("".join(parts), re.DOTALL).fullmatch
    return PolicyCondition(name, wanted, lambda text: fullmatch(text) is not None)


#: Conditions on names that a program has many of, often with a common beginning.
_MAY_BE_PATTERNS: Final = ("handler", "event_type")


def _is_pattern(text: str) -> bool:
    return "*" in text or "?" in text


def _weight(name: str, wanted: Any) -> float:
    """How much a condition says: a name more than a pattern, a longer pattern more."""
    if name == "time_left":
        return -math.inf if wanted is None else -wanted.total_seconds()
    if wanted is None:
        return 0
    if name in _MAY_BE_PATTERNS and _is_pattern(wanted):
        return 1 + sum(c not in "*?" for c in wanted)
    return math.inf


#: Priorities that have a policy of their own.
_PRIORITIES: Final = ("background", "realtime")

_NONE: Final[Mapping[str, Policy]] = {}


class TriedRule(NamedTuple):
    """A rule that was tried, and the condition that it missed; None: it fits."""

    rule: PolicyRule
    missed: PolicyCondition | None


def ranked(rules: Iterable[PolicyRule]) -> tuple[PolicyRule, ...]:
    """*rules* in the order in which they are tried: the first that fits decides.

    The most specific first; of two alike the operator's, then the later one.
    """
    numbered = sorted(
        enumerate(rules), key=lambda one: (one[1].weight, one[1].by_operator, one[0]), reverse=True
    )
    return tuple(rule for _, rule in numbered)


def explain(rules: Sequence[PolicyRule], case: PolicyCase) -> list[TriedRule]:
    """What becomes of each of the *ranked* rules; the first without a miss decides."""
    return [TriedRule(rule, rule.missed(case)) for rule in rules]


@dataclass(frozen=True, slots=True)
class PolicyPlan:
    """The rules that may fit the deliveries of one handler, made ready to be asked often."""

    steps: tuple[tuple[tuple[PolicyCondition, ...], Policy], ...]
    #: Priority → policy, where nothing else matters; the rest gets the last step's.
    _by_priority: Mapping[str, Policy] | None

    def quick(self, priority: str) -> Policy | None:
        """The policy of deliveries of *priority*, or None: it depends on more than that."""
        if self._by_priority is None:
            return None
        return self._by_priority.get(priority) or self.steps[-1][1]

    def choose(self, case: PolicyCase) -> Policy:
        """The policy of *case*."""
        for conditions, policy in self.steps:
            for name, _, fits in conditions:
                if not fits(getattr(case, name)):
                    break
            else:
                return policy
        raise AssertionError("the last rule fits always")


@dataclass(slots=True)
class PolicyRules:
    """The rules of an app. Safe to use from many threads."""

    policies: Mapping[str, Policy]
    #: Those that hold for all handlers: the settings', the priorities', the default.
    general: tuple[PolicyRule, ...]
    #: The plans made so far, by handler.
    plans: dict[str, PolicyPlan] = field(default_factory=dict)

    def named(self, given: Policy | str) -> Policy:
        """The policy *given*, or called so; raises ConfigurationError where none is."""
        return given if isinstance(given, Policy) else named(self.policies, given)

    def check_operation(self, operation: str) -> None:
        """Raise ConfigurationError unless *operation* says something: no policy, no rule has it."""
        if not any(rule.operation == operation for rule in self.general):
            named(self.policies, operation)

    def ranked(self) -> tuple[PolicyRule, ...]:
        """The general rules in the order in which they are tried."""
        return ranked(self.general)

    def of(
        self,
        handler: str,
        *,
        operation: str | None = None,
        own: Policy | str | None = None,
        by_type: Mapping[str, Policy] = _NONE,
    ) -> tuple[PolicyRule, ...]:
        """All rules for deliveries of *handler*, ranked.

        *own* is the policy it names, *by_type* those that it names for types of events.
        """
        said = []
        if own is not None:
            said.append(
                PolicyRule(policy=self.named(own), source=f"policy= of {handler}", handler=handler)
            )
        said += [
            PolicyRule(
                policy=policy,
                source=f"policy for {event_type} of {handler}",
                handler=handler,
                event_type=event_type,
                by_handler=True,
            )
            for event_type, policy in by_type.items()
        ]
        if operation is not None and operation in self.policies:
            source = f"operation= of {handler}"
            policy = self.policies[operation]
            said.append(PolicyRule(policy=policy, source=source, operation=operation))
        return ranked((*said, *self.general))

    def plan(
        self,
        handler: str,
        *,
        operation: str | None = None,
        domain: str | None = None,
        own: Policy | str | None = None,
        by_type: Mapping[str, Policy] = _NONE,
    ) -> PolicyPlan:
        """The plan of *handler*, made at the first call; *domain* is the handler's own."""
        made = self.plans.get(handler)
        if made is None:
            fixed = {"handler": handler, "operation": operation}
            if domain is not None:
                fixed["domain"] = domain
            rules = self.of(handler, operation=operation, own=own, by_type=by_type)
            made = self.plans[handler] = _plan(rules, fixed)
        return made


def policy_rules(
    policies: Mapping[str, Policy],
    default: str = "default",
    rules: Iterable[Mapping[str, Any]] = (),
) -> PolicyRules:
    """The rules of an app whose settings say *rules*: `policy` and conditions by name.

    Raises ConfigurationError for an unknown policy, a rule without conditions, patterns that
    are none, and two rules with the same conditions.
    """
    said = [_of_settings(policies, number, given) for number, given in enumerate(rules)]
    seen: dict[tuple[Any, ...], PolicyRule] = {}
    for rule in said:
        key = tuple(getattr(rule, name) for name in ORDER)
        if (other := seen.setdefault(key, rule)) is not rule:
            what = ", ".join(map(str, rule.conditions))
            msg = f"{other.source} and {rule.source} have the same conditions ({what}): remove one"
            raise ConfigurationError(msg)
    of_priorities = [
        PolicyRule(policy=policies[name], source=f"events of priority {name}", priority=name)
        for name in _PRIORITIES
    ]
    last = PolicyRule(policy=named(policies, default), source="retry.default")
    return PolicyRules(policies, (last, *of_priorities, *said))


def _of_settings(
    policies: Mapping[str, Policy], number: int, given: Mapping[str, Any]
) -> PolicyRule:
    source = f"retry.rules[{number}]"
    conditions = {name: given[name] for name in ORDER if given.get(name) is not None}
    if not conditions:
        msg = f"{source} has no condition: set retry.default instead"
        raise ConfigurationError(msg)
    try:
        policy = named(policies, given["policy"])
    except ConfigurationError as error:
        msg = f"{source}: {error}"
        raise ConfigurationError(msg) from error
    return PolicyRule(policy=policy, source=source, by_operator=True, **conditions)


def _plan(rules: Sequence[PolicyRule], fixed: Mapping[str, Any]) -> PolicyPlan:
    """Leave out rules that cannot fit, and the *fixed* conditions of those that can."""
    steps: list[tuple[tuple[PolicyCondition, ...], Policy]] = []
    for rule in rules:
        if any(c.name in fixed and not c.fits(fixed[c.name]) for c in rule.conditions):
            continue
        open_ones = tuple(c for c in rule.conditions if c.name not in fixed)
        steps.append((open_ones, rule.policy))
        if not open_ones:
            break
    by_priority: dict[str, Policy] = {}
    for conditions, policy in steps[:-1]:
        if [condition.name for condition in conditions] != ["priority"]:
            return PolicyPlan(tuple(steps), None)
        by_priority.setdefault(conditions[0].wanted, policy)
    return PolicyPlan(tuple(steps), by_priority)
