"""Policy rules: which policy a delivery gets, the most specific rule that fits (spec D3). Pure.

What code says is rules, too: a handler's own policy, its operation's, those of priorities, and the
default. Rules of the settings come before those of code that are as specific, so that an operator
has the last word without a deploy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from angzarr.errors import ConfigurationError
from angzarr.resilience.backoff import Policy
from angzarr.resilience.policies import named
from angzarr.resilience.policy_conditions import ORDER, Case, Condition, PolicyRule

#: Priorities that have a policy of their own.
_PRIORITIES: Final = ("background", "realtime")

_NONE: Final[Mapping[str, Policy]] = {}


class Tried(NamedTuple):
    """A rule that was tried, and the condition that it missed; None: it fits."""

    rule: PolicyRule
    missed: Condition | None


def ranked(rules: Iterable[PolicyRule]) -> tuple[PolicyRule, ...]:
    """Return *rules* in the order in which they are tried: the first that fits decides.

    The most specific first; of two alike the operator's, then the later one.
    """
    numbered = sorted(
        enumerate(rules), key=lambda one: (one[1].weight, one[1].by_operator, one[0]), reverse=True
    )
    return tuple(rule for _, rule in numbered)


def explain(rules: Sequence[PolicyRule], case: Case) -> list[Tried]:
    """Return what becomes of each of the *ranked* rules; the first without a miss decides."""
    return [Tried(rule, rule.missed(case)) for rule in rules]


@dataclass(frozen=True, slots=True)
class Plan:
    """The rules that may fit the deliveries of one handler, made ready to be asked often."""

    steps: tuple[tuple[tuple[Condition, ...], Policy], ...]
    #: Priority → policy, where nothing else matters; the rest gets the last step's.
    _by_priority: Mapping[str, Policy] | None

    def quick(self, priority: str) -> Policy | None:
        """Return the policy of deliveries of *priority*, or None: it depends on more than that."""
        if self._by_priority is None:
            return None
        return self._by_priority.get(priority) or self.steps[-1][1]

    def choose(self, case: Case) -> Policy:
        """Return the policy of *case*."""
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
    plans: dict[str, Plan] = field(default_factory=dict)

    def named(self, given: Policy | str) -> Policy:
        """Return the policy *given*, or called so; raises ConfigurationError where none is."""
        return given if isinstance(given, Policy) else named(self.policies, given)

    def check_operation(self, operation: str) -> None:
        """Raise ConfigurationError unless *operation* says something: no policy, no rule has it."""
        if not any(rule.operation == operation for rule in self.general):
            named(self.policies, operation)

    def ranked(self) -> tuple[PolicyRule, ...]:
        """Return the general rules in the order in which they are tried."""
        return ranked(self.general)

    def of(
        self,
        handler: str,
        *,
        operation: str | None = None,
        own: Policy | str | None = None,
        by_type: Mapping[str, Policy] = _NONE,
    ) -> tuple[PolicyRule, ...]:
        """Return all rules for deliveries of *handler*, ranked.

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
    ) -> Plan:
        """Return the plan of *handler*, made at the first call; *domain* is the handler's own."""
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
    """Return the rules of an app whose settings say *rules*: `policy` and conditions by name.

    Raises ConfigurationError for a policy nobody defined, a rule without conditions, patterns that
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


def _plan(rules: Sequence[PolicyRule], fixed: Mapping[str, Any]) -> Plan:
    """Leave out what cannot fit, and what is *fixed* of those that can."""
    steps: list[tuple[tuple[Condition, ...], Policy]] = []
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
            return Plan(tuple(steps), None)
        by_priority.setdefault(conditions[0].wanted, policy)
    return Plan(tuple(steps), by_priority)
