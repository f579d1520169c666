"""Policy conditions: what a rule asks of a case, and how much it says by that (spec D3). Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from operator import eq
from typing import Any, Final, NamedTuple

from angzarr.errors import ConfigurationError
from angzarr.resilience.backoff import Policy
from angzarr.resilience.category import Category

#: The conditions of a rule, the weightiest first: a rule is more specific than another if it says
#: more on the first of these on which they differ, whatever it says on those that follow.
ORDER: Final = (
    "handler", "operation", "event_type", "tenant", "category", "domain", "priority", "time_left",
)  # fmt: skip


class Case(NamedTuple):
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


class Condition(NamedTuple):
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
    conditions: tuple[Condition, ...] = field(init=False, compare=False)
    #: Compared as a tuple; the greater is the more specific.
    weight: tuple[float, ...] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        asked = [(name, getattr(self, name)) for name in ORDER]
        conditions = (_condition(self.source, *one) for one in asked if one[1] is not None)
        object.__setattr__(self, "conditions", tuple(conditions))
        weighed = ("handler",) if self.by_handler else ORDER
        weight = (_weight(name, wanted if name in weighed else None) for name, wanted in asked)
        object.__setattr__(self, "weight", tuple(weight))

    def missed(self, case: Case) -> Condition | None:
        """Return the first condition that does not hold of *case*, or None: the rule fits."""
        for condition in self.conditions:
            if not condition.fits(getattr(case, condition.name)):
                return condition
        return None


def _condition(source: str, name: str, wanted: Any) -> Condition:
    if name == "time_left":
        return Condition(name, wanted, lambda left: left is not None and left < wanted)
    if name not in _MAY_BE_PATTERNS:
        return Condition(name, wanted, partial(eq, wanted))
    if not wanted or (_is_pattern(wanted) and set(wanted) & set("[]")):
        msg = (
            f"{source}: {name} cannot be {wanted!r}: use a name, or a pattern with *"
            " text and ? one character, without brackets"
        )
        raise ConfigurationError(msg)
    if not _is_pattern(wanted):
        return Condition(name, wanted, partial(eq, wanted))
    parts = ({"*": ".*", "?": "."}.get(c) or re.escape(c) for c in wanted)
    fullmatch = re.compile("".join(parts), re.DOTALL).fullmatch
    return Condition(name, wanted, lambda text: fullmatch(text) is not None)


#: Conditions on names that a program has many of, often with a common beginning.
_MAY_BE_PATTERNS: Final = ("handler", "event_type")


def _is_pattern(text: str) -> bool:
    return "*" in text or "?" in text


def _weight(name: str, wanted: Any) -> float:
    """Return how much a condition says: a name more than a pattern, a longer pattern more."""
    if name == "time_left":
        return -math.inf if wanted is None else -wanted.total_seconds()
    if wanted is None:
        return 0
    if name in _MAY_BE_PATTERNS and _is_pattern(wanted):
        return 1 + sum(c not in "*?" for c in wanted)
    return math.inf
