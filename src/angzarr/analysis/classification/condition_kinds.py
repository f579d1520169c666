"""Condition kinds: how each sort of condition is read from what a rule says. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from angzarr.analysis.classification.safe_regex import expression, glob, is_glob

#: Written where a rule asks for what is not known.
UNKNOWN: Final = "unknown"

#: Tells whether a value fits; None stands for what is not known.
Fits: TypeAlias = Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Kind:
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


def one_of(*known: str) -> Kind:
    """Return the kind of a condition that takes some of *known*."""
    return Kind(f"one of {', '.join(known)}, or a list of them", _choice(known))


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
TEXT = Kind("a text, or a list of them, in which * is any text and ? one character", _globs)
REGEX = Kind("a regular expression", _regex)
YES_NO = Kind("true, false or unknown, or a list of them", _yes_no)
LEAST = Kind("a number from 0", _least)
MOST_OF = Kind("a number from 0", _most)


def _list_of(given: Any, kind: type) -> list[Any]:
    found = given if isinstance(given, list | tuple) else [given]
    return list(found) if all(isinstance(one, kind) for one in found) else []
