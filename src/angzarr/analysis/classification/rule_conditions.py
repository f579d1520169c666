"""Rule conditions: what a rule may ask of the evidence (spec A3). Pure; a fixed list.

Letters come from queues and are hostile: every condition costs a bounded time, whatever they hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final, NamedTuple, TypeAlias

from angzarr.analysis.classification.condition_kinds import (
    LEAST,
    MOST_OF,
    REGEX,
    TEXT,
    UNKNOWN,
    YES_NO,
    ConditionKind,
    Fits,
    one_of,
)
from angzarr.analysis.classification.evidence import DependencyHealth, Evidence, ReplayProblem
from angzarr.analysis.ledger.failure import UNREADABLE
from angzarr.dead_letters.letter import DeadLetter, Reason
from angzarr.errors import ConfigurationError
from angzarr.events.headers import EVENT_ID
from angzarr.resilience.breaker import Phase
from angzarr.resilience.category import Category
from angzarr.runtime.text import printable

#: Characters of a value that a sentence shows.
_SHOWN: Final = 80
#: Characters of a message or stack that conditions look at.
LOOKED_AT: Final = 4_000
_NONE: Final = "none"

Get: TypeAlias = Callable[[Evidence], Any]


class RuleCondition(NamedTuple):
    """The condition of a rule on one known fact; None where it is not known."""

    name: str
    wanted: Any
    get: Get
    fits: Fits

    def holds(self, evidence: Evidence) -> bool:
        """True if it holds; what is not known fits nothing that does not ask for that."""
        return self.fits(self.get(evidence))

    def said(self, evidence: Evidence) -> str:
        """The value that *evidence* has instead, for people."""
        return f"{self.name} is {_told(self.get(evidence))}"

    @property
    def wanted_said(self) -> str:
        """The condition, for people."""
        return _told(self.wanted)


class KnownCondition(NamedTuple):
    """A condition that rules may use: where its value is, and how it is compared."""

    get: Get
    kind: ConditionKind
    #: One sentence for the reference.
    what: str


def conditions_of(source: str, given: Any) -> tuple[RuleCondition, ...]:
    """The conditions that *given* lists; raises ConfigurationError naming rule and key."""
    if not isinstance(given, Mapping) or not given:
        msg = f"{source}: when lists at least one condition, like when: {{category: transient}}"
        raise ConfigurationError(msg)
    return tuple(_condition(source, name, wanted) for name, wanted in given.items())


def _condition(source: str, name: Any, wanted: Any) -> RuleCondition:
    if name not in CONDITIONS:
        msg = f"{source}: {name!s} is not a condition; there are {', '.join(CONDITIONS)}"
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
    return RuleCondition(name, wanted, known.get, fits)


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
        return frozenset({UNKNOWN})
    if not evidence.breakers:
        return frozenset({_NONE})
    phases = {one.phase.value for one in evidence.breakers}
    return frozenset(phases | {"ramping" for one in evidence.breakers if one.ramping})


def _fares(whose: str, what: str) -> Get:
    def get(evidence: Evidence) -> int | None:
        fared = getattr(evidence, whose)
        return None if fared is None else getattr(fared, what)

    return get


def _given_up_by(evidence: Evidence) -> str | None:
    failure = evidence.failure
    return None if isinstance(failure, DeadLetter) else failure.told.system


def _fits_now(evidence: Evidence) -> bool | None:
    return evidence.fit.fits


def _has_event(evidence: Evidence) -> bool:
    return evidence.letter is not None and evidence.letter.event is not None


def _names_event(evidence: Evidence) -> bool:
    return evidence.letter is not None and EVENT_ID in evidence.letter.message.headers


def _seconds(span: timedelta) -> float:
    return span.total_seconds()


#: Every condition, by the name that rules give it.
CONDITIONS: Final[Mapping[str, KnownCondition]] = {
    "handler": KnownCondition(_of_letter("handler"), TEXT, "task name of the handler"),
    "domain": KnownCondition(_domain, TEXT, "domain of the letter"),
    "event_type": KnownCondition(_of_event("type"), TEXT, "type of the event"),
    "tenant": KnownCondition(_of_event("tenant_id"), TEXT, "id of the event's tenant"),
    "reason": KnownCondition(
        lambda evidence: evidence.reason,
        one_of(*(one.value for one in Reason), UNREADABLE),
        "why it became a letter",
    ),
    "category": KnownCondition(
        _of_letter("category"),
        one_of(*(one.value for one in Category)),
        "the error's category, as the worker judged it",
    ),
    "error_type": KnownCondition(
        _of_letter("error_type"), TEXT, "path of the exception's class; subclasses do not fit"
    ),
    "own_error": KnownCondition(
        lambda e: e.own_error, YES_NO, "whether the exception's class is of the handler's package"
    ),
    "raised_in_app": KnownCondition(
        lambda e: e.raised_in_app,
        YES_NO,
        "whether the application's own code raised it, no library",
    ),
    "error_code": KnownCondition(
        _of_letter("error_code"), TEXT, "the error's code, like `HTTP_503`"
    ),
    "message": KnownCondition(
        _message, TEXT, "the whole error message; write `*` around a part of it"
    ),
    "message_matches": KnownCondition(_message, REGEX, "found anywhere in the error message"),
    "explanation": KnownCondition(
        _explanation, TEXT, "the sentence that says why it became a letter"
    ),
    "stack": KnownCondition(
        _stack, TEXT, "the end of the stack trace; write `*` around a part of it"
    ),
    "release": KnownCondition(_of_letter("version"), TEXT, "release of the worker that failed"),
    "component_type": KnownCondition(
        _of_letter("component_type"), TEXT, "`handler`, `ordered_handler`, `projector`, …"
    ),
    "given_up_by": KnownCondition(
        _given_up_by,
        TEXT,
        "the system whose dead letter it is, where that is not angzarr: `Kafka Connect`, …",
    ),
    "has_event": KnownCondition(_has_event, YES_NO, "whether the letter's event could be read"),
    "names_event": KnownCondition(
        _names_event, YES_NO, "whether a header of its message has an event id"
    ),
    "replays_at_least": KnownCondition(lambda e: e.replays, LEAST, "replays begun so far"),
    "failed_again": KnownCondition(
        lambda e: e.failed_again, YES_NO, "whether its last replay failed"
    ),
    "age_at_least": KnownCondition(
        lambda e: _seconds(e.age), LEAST, "seconds since it failed last"
    ),
    "problem": KnownCondition(
        lambda e: e.problem, one_of(*ReplayProblem), "what stands against a replay"
    ),
    "dependency": KnownCondition(
        lambda e: e.dependency,
        one_of(*DependencyHealth),
        "how the handler's dependencies are now, of all that is known",
    ),
    "breaker": KnownCondition(
        _phases,
        one_of(*Phase, "ramping", _NONE, UNKNOWN),
        "a breaker of the handler stands so; `none`: it has none",
    ),
    "error_share_at_least": KnownCondition(
        lambda e: e.error_share, LEAST, "largest share of failed calls of its breakers, 0 to 1"
    ),
    "error_share_at_most": KnownCondition(lambda e: e.error_share, MOST_OF, "the same"),
    "newer_release": KnownCondition(
        lambda e: e.newer_release,
        YES_NO,
        "whether all its workers run a newer release than the one that failed",
    ),
    "payload_fits": KnownCondition(
        _fits_now, YES_NO, "whether the event decodes as its handler declares it now"
    ),
    "group_events_at_least": KnownCondition(
        _fares("group_fares", "events"), LEAST, "events of the same fingerprint"
    ),
    "group_events_at_most": KnownCondition(_fares("group_fares", "events"), MOST_OF, "the same"),
    "group_failed_at_least": KnownCondition(
        _fares("group_fares", "failed"), LEAST, "of these, failed in the last 5 minutes"
    ),
    "group_handled_at_least": KnownCondition(
        _fares("group_fares", "handled"),
        LEAST,
        "of these, handled in a replay in the last 5 minutes",
    ),
    "others_pass": KnownCondition(
        lambda e: e.others_pass,
        YES_NO,
        "whether other events of the handler pass: more were handled in a replay than failed in the"
        " last 5 minutes; false: 20 or more failed and none was handled",
    ),
    "handler_failed_at_least": KnownCondition(
        _fares("handler_fares", "failed"),
        LEAST,
        "events of the same handler that failed in the last 5 minutes",
    ),
    "handler_handled_at_least": KnownCondition(
        _fares("handler_fares", "handled"),
        LEAST,
        "events of the same handler that were handled in a replay in the last 5 minutes",
    ),
    "handler_handled_at_most": KnownCondition(
        _fares("handler_fares", "handled"), MOST_OF, "the same"
    ),
}


def _told(value: Any) -> str:
    """A value in a few printable characters."""
    if value is None:
        return UNKNOWN
    if isinstance(value, list | tuple | set | frozenset):
        return " or ".join(sorted(_told(one) for one in value))
    if isinstance(value, float):
        return f"{value:.3g}"
    text = printable(str(value).lower() if isinstance(value, bool) else value)
    return (text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…") or "empty"
