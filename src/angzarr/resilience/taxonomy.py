"""classify: an exception → what kind of failure it is (spec D2). Pure, and never raises."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeAlias

from angzarr.errors import ConfigurationError
from angzarr.resilience.category import (
    ILLNESS,
    Category,
    Classification,
    Verdict,
    VerdictRule,
    retryable,
    verdict_for,
)
from angzarr.resilience.taxonomy_codes import class_paths
from angzarr.resilience.taxonomy_evidence import DEPTH, evidence

__all__ = [
    "ILLNESS",
    "Category",
    "Classification",
    "Rule",
    "Verdict",
    "VerdictRule",
    "classify",
    "retryable",
    "verdict_for",
]

#: An exception class, its path (``stripe.CardError``, for what need not be installed), or a
#: question about the exception; a question that raises is answered no.
Matches: TypeAlias = type[BaseException] | str | Callable[[BaseException], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A developer's word on an exception; empty `handler`, `event_type`: for all of them."""

    matches: Matches
    category: Category
    code: str = ""
    retry_after: timedelta | None = None
    handler: str = ""
    event_type: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.matches, str) and "." not in self.matches:
            msg = f"a rule names an exception as module.Class, not {self.matches!r}"
            raise ConfigurationError(msg)


#: The rules that hold for one delivery, in the order in which they are asked.
_Scopes: TypeAlias = tuple[tuple[Rule, ...], ...]


def classify(
    error: BaseException,
    *scopes: Iterable[Rule],
    now: datetime,
    handler: str = "",
    event_type: str = "",
) -> Classification:
    """The classification of *error*; *now* (UTC-aware) dates a Retry-After.

    *scopes* are the developer's rules, the most specific scope first (the handler's, then the
    app's). Within a scope a rule for *handler* beats one for *event_type*, that beats one for
    all; then a question beats a class, a class its bases, the first listed the next. All rules
    beat the built-in ones. Only where an error says nothing its cause is asked.
    """
    in_scope = tuple(
        tuple(
            rule
            for rule in scope
            if rule.handler in ("", handler) and rule.event_type in ("", event_type)
        )
        for scope in scopes
    )
    return _say(error, in_scope, now, DEPTH) or Classification(
        category=Category.UNKNOWN, reason=f"{class_paths(error)[0]}: no rule classifies it"
    )


#: Gravest first: what one member of a group says no retry can cure, no other member cures.
_GRAVITY = (
    Category.UNKNOWN, Category.AUTHORIZATION, Category.BUDGET, Category.CLIENT, Category.INTEGRITY,
    Category.SERVER, Category.EXTERNAL, Category.CONFLICT, Category.TRANSIENT,
)  # fmt: skip

#: What the interpreter raises at a bug. Raised while another error was being handled, such an
#: error is still the bug; only an explicit ``raise … from`` hands the word on.
_BUGS = (
    AssertionError, AttributeError, ArithmeticError, ZeroDivisionError, OverflowError, ImportError,
    ModuleNotFoundError, IndexError, KeyError, NameError, UnboundLocalError, NotImplementedError,
    RecursionError, SystemError, TypeError, ValueError,
)  # fmt: skip


def _say(error: BaseException, scopes: _Scopes, now: datetime, depth: int) -> Classification | None:
    said = evidence(error, now)
    if ruled := _ruled(error, scopes, said):
        return ruled
    if said or not depth:
        return said
    if isinstance(error, BaseExceptionGroup):
        return _gravest(error, scopes, now, depth)
    inner = _inner(error)
    found = _say(inner, scopes, now, depth - 1) if inner else None
    return found and replace(found, reason=f"{found.reason}, cause of {class_paths(error)[0]}")


def _inner(error: BaseException) -> BaseException | None:
    """The error that *error* stands for: its cause, or the one being handled meanwhile."""
    if error.__cause__ or error.__suppress_context__ or type(error) in _BUGS:
        return error.__cause__
    return error.__context__


def _gravest(
    group: BaseExceptionGroup[BaseException], scopes: _Scopes, now: datetime, depth: int
) -> Classification | None:
    said = [_say(member, scopes, now, depth - 1) for member in group.exceptions]
    known = [one for one in said if one]
    if len(known) < len(said):
        return None
    waits = [one.retry_after for one in known if one.retry_after]
    gravest = min(known, key=lambda one: _GRAVITY.index(one.category))
    return replace(gravest, retry_after=max(waits, default=None))


def _ruled(
    error: BaseException, scopes: _Scopes, said: Classification | None
) -> Classification | None:
    rule = next(filter(None, (_nearest(error, scope) for scope in scopes)), None)
    if rule is None:
        return None
    return Classification(
        category=rule.category,
        code=rule.code or (said.code if said else type(error).__name__),
        reason=f"{class_paths(error)[0]}: by rule",
        retry_after=rule.retry_after or (said.retry_after if said else None),
    )


def _nearest(error: BaseException, scope: tuple[Rule, ...]) -> Rule | None:
    near = [
        (not rule.handler, not rule.event_type, distance, rule)
        for rule in scope
        if (distance := _distance(rule.matches, error)) is not None
    ]
    return min(near, key=lambda one: one[:3])[3] if near else None


def _distance(matches: Matches, error: BaseException) -> int | None:
    if isinstance(matches, str):
        paths = class_paths(error)
        return paths.index(matches) if matches in paths else None
    if isinstance(matches, type):
        mro = type(error).__mro__
        return mro.index(matches) if matches in mro else None
    try:
        return -1 if matches(error) else None
    except Exception:  # noqa: BLE001 - a rule must not fail the delivery; the built-in word stands
        return None
