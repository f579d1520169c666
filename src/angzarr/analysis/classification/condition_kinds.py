"""Condition kinds: how each sort of condition is read from what a rule says. Pure.

Pattern: texts that rules look for, at a bounded cost, since letters are hostile. Pure.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, Final, NamedTuple, TypeAlias

from angzarr.errors import ConfigurationError

# Ours and not RE2: there \d, \w and \b know ASCII alone, and possessive repeats and atomic groups
# are refused, so rules that users wrote would fail to load, or mean something else without a word.
#: Characters of a text that a regular expression sees.
SEARCHED: Final = 1_000
#: Steps that one search may take at most, by the shape of its expression: a tenth of a second.
MOST_STEPS: Final = 30_000_000
_TOO_DEAR: Final = (
    "could take too long on a hostile text: use at most one open repeat (* or +), none inside"
    r" another, little behind it, and bounds such as \d{1,5}; or patterns with *, of which there"
    " may be many"
)


def glob(pattern: str) -> Callable[[str], bool]:
    """A test for whole texts: ``*`` is any text, ``?`` one character.

    No part of a text is looked at again once the next part of the pattern was found (atomic
    groups), so a match takes at most length times length steps, whatever the text.
    """
    first, *rest = (_literally(part) for part in re.split(r"\*+", pattern))
    between, last = rest[:-1], rest[-1:]
    atoms = "".join(f"(?>.*?{part})" for part in between)
    end = f".*{last[0]}" if last else ""
    fullmatch = re.compile(f"{first}{atoms}{end}", re.DOTALL).fullmatch
    return lambda text: fullmatch(text) is not None


def is_glob(text: str) -> bool:
    """True if *text* is a pattern and not just a text."""
    return "*" in text or "?" in text


def expression(pattern: str) -> Callable[[str], bool]:
    """A search for a regular expression in the first `SEARCHED` characters of a text.

    Raises ConfigurationError for one that is none, or that could take too long.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            steps = SEARCHED * _cost(parser.parse(pattern)).steps
            search = re.compile(pattern).search
    except (re.error, Warning, RecursionError, OverflowError) as error:
        msg = f"{pattern!r} is not a regular expression: {error}"
        raise ConfigurationError(msg) from error
    if steps > MOST_STEPS:
        msg = f"{pattern!r} {_TOO_DEAR}"
        raise ConfigurationError(msg)
    return lambda text: search(text[:SEARCHED]) is not None


def _literally(part: str) -> str:
    return "".join("." if character == "?" else re.escape(character) for character in part)


class _Cost(NamedTuple):
    """In how many ways something may match from one place, and how many steps that takes."""

    ways: float
    steps: float


def _cost(parsed: Any) -> _Cost:
    """The cost of a parsed expression: each part is tried for each way of those before it."""
    ways, steps = 1.0, 1.0
    for kind, what in parsed:
        part = _cost_of(str(kind), what)
        steps += ways * part.steps
        ways *= part.ways
    return _Cost(ways, steps)


def _cost_of(kind: str, what: Any) -> _Cost:
    match kind:
        case "LITERAL" | "NOT_LITERAL" | "ANY" | "IN" | "AT":
            return _Cost(1, 1)
        case "BRANCH":
            costs = [_cost(branch) for branch in what[1]]
            return _Cost(sum(one.ways for one in costs), sum(one.steps for one in costs))
        case "SUBPATTERN":
            return _cost(what[-1])
        case "ATOMIC_GROUP":
            return _cost(what)
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            least, most, inner = what
            most, one = min(int(most), SEARCHED), _cost(inner)
            ways = most - least + 1 if one.ways == 1 else _power(one.ways, most)
            return _Cost(ways, max(most, 1) * one.steps * _power(one.ways, most))
        case _:  # references and assertions look at the text again
            return _Cost(math.inf, math.inf)


def _power(ways: float, times: int) -> float:
    try:
        return float(ways**times)
    except OverflowError:
        return math.inf


#: Written where a rule asks for what is not known.
UNKNOWN: Final = "unknown"

#: Tells whether a value fits; None stands for what is not known.
Fits: TypeAlias = Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class ConditionKind:
    """How one sort of condition is read from what a rule says."""

    #: What must be written, for the sentence that refuses something else.
    form: str
    #: Returns the test, None where the form is not met.
    make: Callable[[Any], Fits | None]


def _globs(wanted: Any) -> Fits | None:
    patterns = _list_of(wanted, str)
    if not patterns or not all(patterns):
        return None
    exact = frozenset(one for one in patterns if not is_glob(one))
    wild = tuple(glob(one) for one in patterns if is_glob(one))

    def fits(text: Any) -> bool:
        if text is None:
            return False
        return text in exact or any(fits_one(text) for fits_one in wild)

    return fits


def _regex(wanted: Any) -> Fits | None:
    if not isinstance(wanted, str) or not wanted:
        return None
    search = expression(wanted)
    return lambda text: text is not None and search(text)


def _choice(known: Iterable[str]) -> Callable[[Any], Fits | None]:
    allowed = frozenset(known)

    def make(wanted: Any) -> Fits | None:
        chosen = frozenset(_list_of(wanted, str))
        if not chosen or not chosen <= allowed:
            return None
        return lambda value: (
            bool(chosen & value) if isinstance(value, frozenset) else value in chosen
        )

    return make


def one_of(*known: str) -> ConditionKind:
    """The kind of a condition that takes some of *known*."""
    return ConditionKind(f"one of {', '.join(known)}, or a list of them", _choice(known))


def _yes_no(wanted: Any) -> Fits | None:
    chosen = wanted if isinstance(wanted, list | tuple) else [wanted]
    if not chosen or not all(isinstance(one, bool) or one == UNKNOWN for one in chosen):
        return None
    allowed = {None if one == UNKNOWN else one for one in chosen}
    return lambda value: value in allowed


def _least(wanted: Any) -> Fits | None:
    if isinstance(wanted, bool) or not isinstance(wanted, int | float) or not 0 <= wanted < _MANY:
        return None
    return lambda value: value is not None and value >= wanted


def _most(wanted: Any) -> Fits | None:
    if isinstance(wanted, bool) or not isinstance(wanted, int | float) or not 0 <= wanted < _MANY:
        return None
    return lambda value: value is not None and value <= wanted


_MANY: Final = 10**12
TEXT = ConditionKind(
    "a text, or a list of them, in which * is any text and ? one character", _globs
)
REGEX = ConditionKind("a regular expression", _regex)
YES_NO = ConditionKind("true, false or unknown, or a list of them", _yes_no)
LEAST = ConditionKind("a number from 0", _least)
MOST_OF = ConditionKind("a number from 0", _most)


def _list_of(given: Any, kind: type) -> list[Any]:
    found = given if isinstance(given, list | tuple) else [given]
    return list(found) if all(isinstance(one, kind) for one in found) else []
