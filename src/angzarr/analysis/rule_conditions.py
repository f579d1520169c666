"""Rule conditions: what a rule may ask of the evidence (spec A3). Pure; a fixed list.

Letters come from queues and are hostile: every condition costs a bounded time, whatever they hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, NamedTuple, TypeAlias

from angzarr.analysis.entry import UNREADABLE
from angzarr.analysis.evidence import Evidence, Health, Problem
from angzarr.analysis.pattern import expression, glob, is_glob
from angzarr.dead_letters.letter import Reason
from angzarr.errors import ConfigurationError
from angzarr.printable import printable
from angzarr.resilience.breaker import Phase
from angzarr.resilience.category import Category

#: Characters of a value that a sentence shows.
_SHOWN: Final = 80
#: Characters of a message or stack that conditions look at.
LOOKED_AT: Final = 4_000
_UNKNOWN: Final = "unknown"
_NONE: Final = "none"

Get: TypeAlias = Callable[[Evidence], Any]
Fits: TypeAlias = Callable[[Any], bool]


class Condition(NamedTuple):
    """What a rule asks of one thing that is known; None where it is not."""

    name: str
    wanted: Any
    get: Get
    fits: Fits

    def holds(self, evidence: Evidence) -> bool:
        """Tell whether it holds; what is not known fits nothing that does not ask for that."""
        return self.fits(self.get(evidence))

    def said(self, evidence: Evidence) -> str:
        """Return what *evidence* has instead, for people."""
        return f"{self.name} is {_told(self.get(evidence))}"

    @property
    def wanted_said(self) -> str:
        """What is asked, for people."""
        return _told(self.wanted)


@dataclass(frozen=True, slots=True)
class _Kind:
    """How one sort of condition is read from what a rule says."""

    #: What must be written, for the sentence that refuses something else.
    form: str
    #: Returns the test, None where the form is not met.
    make: Callable[[Any], Fits | None]


class _Known(NamedTuple):
    get: Get
    kind: _Kind
    #: One sentence for the reference.
    what: str


def conditions_of(source: str, given: Any) -> tuple[Condition, ...]:
    """Return the conditions that *given* lists; raises ConfigurationError naming rule and key."""
    if not isinstance(given, Mapping) or not given:
        msg = f"{source}: when lists at least one condition, like when: {{category: transient}}"
        raise ConfigurationError(msg)
    return tuple(_condition(source, name, wanted) for name, wanted in given.items())


def _condition(source: str, name: Any, wanted: Any) -> Condition:
    if name not in CONDITIONS:
        msg = f"{source}: {name!s} is no condition; there are {', '.join(CONDITIONS)}"
        raise ConfigurationError(msg)
    known = CONDITIONS[name]
    try:
        fits = known.kind.make(wanted)
    except ConfigurationError as error:
        msg = f"{source}: {name}: {error}"
        raise ConfigurationError(msg) from error
    if fits is None:
        msg = f"{source}: {name} is {known.kind.form}, not {wanted!r}"
        raise ConfigurationError(msg)
    return Condition(name, wanted, known.get, fits)


# -- kinds -----------------------------------------------------------------------------------


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


def _one_of(*known: str) -> _Kind:
    return _Kind(f"one of {', '.join(known)}, or a list of them", _choice(known))


def _yes_no(wanted: Any) -> Fits | None:
    chosen = wanted if isinstance(wanted, list | tuple) else [wanted]
    if not chosen or not all(isinstance(one, bool) or one == _UNKNOWN for one in chosen):
        return None
    allowed = {None if one == _UNKNOWN else one for one in chosen}
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
_TEXT = _Kind("a text, or a list of them, in which * is any text and ? one character", _globs)
_REGEX = _Kind("a regular expression", _regex)
_BOOL = _Kind("true, false or unknown, or a list of them", _yes_no)
_LEAST = _Kind("a number from 0", _least)
_MOST = _Kind("a number from 0", _most)


# -- what can be asked -----------------------------------------------------------------------


def _of_letter(name: str) -> Get:
    def get(evidence: Evidence) -> Any:
        return getattr(evidence.letter, name, None)

    return get


def _of_event(name: str) -> Get:
    def get(evidence: Evidence) -> Any:
        letter = evidence.letter
        return getattr(letter.event, name, None) if letter else None

    return get


def _domain(evidence: Evidence) -> str:
    return evidence.failure.domain


def _message(evidence: Evidence) -> str | None:
    letter = evidence.letter
    return letter.error_message[:LOOKED_AT] if letter else None


def _explanation(evidence: Evidence) -> str:
    failure = evidence.failure
    said = evidence.letter.explanation if evidence.letter else getattr(failure, "problem", "")
    return str(said)[:LOOKED_AT]


def _stack(evidence: Evidence) -> str | None:
    letter = evidence.letter
    return letter.error_stack[-LOOKED_AT:] if letter else None


def _phases(evidence: Evidence) -> frozenset[str]:
    if evidence.breakers is None:
        return frozenset({_UNKNOWN})
    if not evidence.breakers:
        return frozenset({_NONE})
    phases = {one.phase.value for one in evidence.breakers}
    return frozenset(phases | {"ramping" for one in evidence.breakers if one.ramping})


def _fares(whose: str, what: str) -> Get:
    def get(evidence: Evidence) -> int | None:
        fared = getattr(evidence, whose)
        return None if fared is None else getattr(fared, what)

    return get


def _fits_now(evidence: Evidence) -> bool | None:
    return evidence.fit.fits


def _has_event(evidence: Evidence) -> bool:
    return evidence.letter is not None and evidence.letter.event is not None


def _seconds(span: timedelta) -> float:
    return span.total_seconds()


#: Every condition, by the name that rules give it.
CONDITIONS: Final[Mapping[str, _Known]] = {
    "handler": _Known(_of_letter("handler"), _TEXT, "task name of the handler"),
    "domain": _Known(_domain, _TEXT, "domain of the letter"),
    "event_type": _Known(_of_event("type"), _TEXT, "type of the event"),
    "tenant": _Known(_of_event("tenant_id"), _TEXT, "id of the event's tenant"),
    "reason": _Known(
        lambda evidence: evidence.reason,
        _one_of(*(one.value for one in Reason), UNREADABLE),
        "why it became a letter",
    ),
    "category": _Known(
        _of_letter("category"),
        _one_of(*(one.value for one in Category)),
        "the error's category, as the worker judged it",
    ),
    "error_type": _Known(
        _of_letter("error_type"), _TEXT, "path of the exception's class; subclasses do not fit"
    ),
    "own_error": _Known(
        lambda e: e.own_error, _BOOL, "whether the exception's class is of the handler's package"
    ),
    "raised_in_app": _Known(
        lambda e: e.raised_in_app, _BOOL, "whether the application's own code raised it, no library"
    ),
    "error_code": _Known(_of_letter("error_code"), _TEXT, "the error's code, like `HTTP_503`"),
    "message": _Known(_message, _TEXT, "the whole error message; write `*` around a part of it"),
    "message_matches": _Known(_message, _REGEX, "found anywhere in the error message"),
    "explanation": _Known(_explanation, _TEXT, "the sentence that says why it became a letter"),
    "stack": _Known(_stack, _TEXT, "the end of the stack trace; write `*` around a part of it"),
    "release": _Known(_of_letter("version"), _TEXT, "release of the worker that failed"),
    "component_type": _Known(_of_letter("component_type"), _TEXT, "`handler`, `projector`, …"),
    "has_event": _Known(_has_event, _BOOL, "whether the letter's event could be read"),
    "replays_at_least": _Known(lambda e: e.replays, _LEAST, "replays begun so far"),
    "failed_again": _Known(lambda e: e.failed_again, _BOOL, "whether its last replay failed"),
    "age_at_least": _Known(lambda e: _seconds(e.age), _LEAST, "seconds since it failed last"),
    "problem": _Known(lambda e: e.problem.value, _one_of(*Problem), "what stands against a replay"),
    "dependency": _Known(
        lambda e: e.dependency.value,
        _one_of(*Health),
        "how the handler's dependencies are now, of all that is known",
    ),
    "breaker": _Known(
        _phases,
        _one_of(*Phase, "ramping", _NONE, _UNKNOWN),
        "a breaker of the handler stands so; `none`: it has none",
    ),
    "error_share_at_least": _Known(
        lambda e: e.error_share, _LEAST, "largest share of failed calls of its breakers, 0 to 1"
    ),
    "error_share_at_most": _Known(lambda e: e.error_share, _MOST, "the same"),
    "newer_release": _Known(
        lambda e: e.newer_release,
        _BOOL,
        "whether all its workers run a newer release than the one that failed",
    ),
    "payload_fits": _Known(
        _fits_now, _BOOL, "whether the event decodes as its handler declares it now"
    ),
    "group_events_at_least": _Known(
        _fares("group_fares", "events"), _LEAST, "events of the same fingerprint"
    ),
    "group_events_at_most": _Known(_fares("group_fares", "events"), _MOST, "the same"),
    "group_failed_at_least": _Known(
        _fares("group_fares", "failed"), _LEAST, "of these, failed in the last 5 minutes"
    ),
    "group_handled_at_least": _Known(
        _fares("group_fares", "handled"),
        _LEAST,
        "of these, handled in a replay in the last 5 minutes",
    ),
    "others_pass": _Known(
        lambda e: e.others_pass,
        _BOOL,
        "whether other events of the handler pass: more were handled in a replay than failed in the"
        " last 5 minutes; false: 20 or more failed and none was handled",
    ),
    "handler_failed_at_least": _Known(
        _fares("handler_fares", "failed"),
        _LEAST,
        "events of the same handler that failed in the last 5 minutes",
    ),
    "handler_handled_at_least": _Known(
        _fares("handler_fares", "handled"),
        _LEAST,
        "events of the same handler that were handled in a replay in the last 5 minutes",
    ),
    "handler_handled_at_most": _Known(_fares("handler_fares", "handled"), _MOST, "the same"),
}


def _list_of(given: Any, kind: type) -> list[Any]:
    found = given if isinstance(given, list | tuple) else [given]
    return list(found) if all(isinstance(one, kind) for one in found) else []


def _told(value: Any) -> str:
    """Return a value in a few printable characters."""
    if value is None:
        return _UNKNOWN
    if isinstance(value, list | tuple | set | frozenset):
        return " or ".join(sorted(_told(one) for one in value))
    if isinstance(value, float):
        return f"{value:.3g}"
    text = printable(str(value).lower() if isinstance(value, bool) else value)
    return (text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…") or "empty"
