"""Evidence: all that is known of a failure when it is classified (spec A3), and its words. Pure.

What could not be found out is None, and the words call it unknown: no rule takes it for a yes or a
no.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from string import Formatter
from typing import Any, Final, NamedTuple

from angzarr.analysis.ledger.counts import PeerStats
from angzarr.analysis.ledger.failure import UNREADABLE, Failure, explanation_of, replay_of
from angzarr.dead_letters.fingerprint import raised_in_app
from angzarr.dead_letters.letter import DeadLetter, Distrusted, NoTarget
from angzarr.resilience.breaker import Phase
from angzarr.runtime.fast_init import fast_init
from angzarr.runtime.text import printable

#: The share of failures up to which a closed breaker says that its dependency is well.
WELL_SHARE: Final = 0.1
#: How many of the same group must have failed lately before a closed breaker is doubted.
DOUBT: Final = 5
#: How many of a handler's events must have failed lately before it is said that all of them do.
MANY: Final = 20
_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)


class DependencyHealth(StrEnum):
    """How the dependencies of a handler are now, as far as anybody can tell."""

    WELL = "well"
    ILL = "ill"
    UNKNOWN = "unknown"


class ReplayProblem(StrEnum):
    """What kind of thing stands against a replay."""

    NONE = "none"
    NO_TARGET = "no_target"  # no such handler, no such queue here
    DISTRUSTED = "distrusted"  # the letter may be forged
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerSeen:
    """A breaker of the failed handler, as it stood when it was looked at."""

    name: str
    phase: Phase
    #: Closed, and letting traffic in gradually.
    ramping: bool = False
    #: Not closed, and its time is up: the next call is its probe; there may be no caller.
    to_be_tried: bool = False
    #: Calls within its window, and those that failed.
    calls: int = 0
    failures: int = 0
    #: When it changed its phase last, and when an open one may be tried again.
    changed_at: datetime | None = None
    retry_at: datetime | None = None

    @property
    def error_share(self) -> float | None:
        """The share of its calls that failed; None: there were none."""
        return self.failures / self.calls if self.calls else None

    @property
    def health(self) -> DependencyHealth:
        """The health of the dependency behind this breaker."""
        if self.to_be_tried:
            return DependencyHealth.UNKNOWN
        if self.phase is not Phase.CLOSED or self.ramping:
            return DependencyHealth.ILL
        return (
            DependencyHealth.WELL
            if (self.error_share or 0) <= WELL_SHARE
            else DependencyHealth.UNKNOWN
        )

    def __str__(self) -> str:
        share = f", {self.failures} of {self.calls} calls failed" if self.calls else ""
        how = ", to be tried" if self.to_be_tried else ", ramping up" if self.ramping else ""
        return f"{self.name} {self.phase}{how}{share}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """True if the event decodes as its handler declares it now; None: it was not tried."""

    fits: bool | None = None
    #: What does not fit, or why it was not tried.
    why: str = ""


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that is known. Times are UTC-aware."""

    failure: Failure
    #: When it was gathered.
    now: datetime = _LONG_AGO
    #: When it failed last as the ledger believes it, which the letter's own clock may contradict.
    believed_at: datetime | None = None
    #: Replays begun so far, a person's included.
    replays: int = 0
    #: Why the message cannot be sent to where it came from; empty: it can.
    target_problem: str = ""
    #: The handler's breakers; empty: it names none; None: they cannot be asked for.
    breakers: tuple[BreakerSeen, ...] | None = None
    breakers_at: datetime | None = None
    #: How the handler's other events, and those of the same group, fare.
    handler_fares: PeerStats | None = None
    group_fares: PeerStats | None = None
    #: Whether a worker runs a release that is newer than the one that failed.
    newer_release: bool | None = None
    fit: Fit = Fit(why="not tried")
    #: The task that undoes what the handler does; empty: it names none; None: not known.
    undone_by: str | None = None

    @property
    def letter(self) -> DeadLetter | None:
        """The letter; None where its own bytes could not be read."""
        return self.failure if isinstance(self.failure, DeadLetter) else None

    @property
    def reason(self) -> str:
        """Why it became a letter."""
        return self.failure.reason.value if isinstance(self.failure, DeadLetter) else UNREADABLE

    @property
    def own_error(self) -> bool | None:
        """True if the exception's class is of the same package as the handler."""
        letter = self.letter
        if letter is None or not letter.error_type or not letter.handler:
            return None
        package, dot, _ = letter.error_type.partition(".")
        return bool(dot) and package == letter.handler.partition(".")[0]

    @property
    def raised_in_app(self) -> bool | None:
        """True if the application's own code raised it, and not a library; None: no stack says."""
        return raised_in_app(self.letter.error_stack) if self.letter else None

    @property
    def problem(self) -> ReplayProblem:
        """The kind of obstacle to a replay."""
        match self.target_problem:
            case "":
                return ReplayProblem.NONE
            case Distrusted():
                return ReplayProblem.DISTRUSTED
            case NoTarget():
                return ReplayProblem.NO_TARGET
            case _:
                return ReplayProblem.OTHER

    @property
    def failed_at(self) -> datetime:
        """When it failed last; as the letter tells it where no ledger has judged that."""
        if self.believed_at is not None:
            return self.believed_at
        if isinstance(self.failure, DeadLetter):
            return self.failure.last_attempt_at or self.failure.sent_to_dlq_at
        return self.failure.received_at

    @property
    def age(self) -> timedelta:
        """How long ago that was."""
        return max(self.now - self.failed_at, timedelta(0))

    @property
    def failed_again(self) -> bool:
        """True if it reports a replay that failed."""
        return replay_of(self.failure) > 0

    @property
    def barring(self) -> tuple[BreakerSeen, ...]:
        """The breakers that would let no replay through now, or hardly any."""
        return tuple(one for one in self.breakers or () if one.health is DependencyHealth.ILL)

    @property
    def error_share(self) -> float | None:
        """The largest share of failed calls of the handler's breakers."""
        shares = [one.error_share for one in self.breakers or () if one.error_share is not None]
        return max(shares, default=None)

    @property
    def dependency(self) -> DependencyHealth:
        """How the handler's dependencies are.

        Ill if a breaker says so. Well if all do, or, where the handler has none that anybody can
        ask, if events of the same group were replayed lately and handled.
        """
        said = {one.health for one in self.breakers or ()}
        if DependencyHealth.ILL in said:
            return DependencyHealth.ILL
        if DependencyHealth.UNKNOWN in said or self._group_fails:
            return DependencyHealth.UNKNOWN
        return DependencyHealth.WELL if said or self._group_passes else DependencyHealth.UNKNOWN

    @property
    def others_pass(self) -> bool | None:
        """True if other events of the handler pass; None: too little happened lately to say."""
        fared = self.handler_fares
        if fared is None:
            return None
        if fared.handled > fared.failed:
            return True
        return False if fared.failed >= MANY and not fared.handled else None

    @property
    def _group_fails(self) -> bool:
        """True if others of its group failed lately and hardly any was handled."""
        fared = self.group_fares
        return fared is not None and fared.failed >= DOUBT and fared.failed > fared.handled

    @property
    def _group_passes(self) -> bool:
        fared = self.group_fares
        return fared is not None and fared.handled > fared.failed


_LETTER = "letter"
_LEDGER = "ledger"
_APP = "this app"


class EvidenceItem(NamedTuple):
    """One thing that is known, or that is not: then `says` is None and `source` tells why."""

    name: str
    says: str | None
    source: str
    #: Of when it is; None: it does not age.
    at: datetime | None = None


def evidence_items(evidence: Evidence) -> list[EvidenceItem]:
    """All that is known, and all that is not."""
    return [*_of_letter(evidence), *_of_now(evidence)]


def _of_letter(evidence: Evidence) -> Iterator[EvidenceItem]:
    letter, at = evidence.letter, evidence.failed_at
    yield EvidenceItem("reason", evidence.reason, _LETTER, at)
    if letter is None:
        yield EvidenceItem("error", None, "the letter cannot be read")
        return
    said = f"{letter.error_type}: {letter.error_message}".strip(": ")
    yield EvidenceItem("error", said or letter.explanation, _LETTER, at)
    yield EvidenceItem("category, code", f"{letter.category}, {letter.error_code}", _LETTER, at)
    own = evidence.own_error
    yield EvidenceItem("an error of its own", None if own is None else _yes(own), _LETTER)
    yield EvidenceItem("release that failed", letter.version or None, _LETTER, at)
    again = ", the last one failed" if evidence.failed_again else ""
    yield EvidenceItem("replays", f"{evidence.replays}{again}", _LEDGER, evidence.now)


def _of_now(evidence: Evidence) -> Iterator[EvidenceItem]:
    now = evidence.now
    yield EvidenceItem("stands against a replay", evidence.target_problem or "nothing", _APP, now)
    yield from _breakers(evidence.breakers, evidence.breakers_at)
    yield EvidenceItem("dependency", evidence.dependency.value, "breakers, group", now)
    yield _fares("other events of the handler", evidence.handler_fares, now)
    passing = evidence.others_pass
    yield EvidenceItem("others pass", None if passing is None else _yes(passing), _LEDGER, now)
    yield _fares("the group", evidence.group_fares, now)
    newer = evidence.newer_release
    yield EvidenceItem("a newer release runs", None if newer is None else _yes(newer), "fleet", now)
    fits = evidence.fit.fits
    says = None if fits is None else f"{_yes(fits)}: {evidence.fit.why}"
    yield EvidenceItem("the event decodes", says, _APP if says else evidence.fit.why, now)
    yield EvidenceItem("undone by", evidence.undone_by or None, _APP)


def _breakers(seen: tuple[BreakerSeen, ...] | None, at: datetime | None) -> Iterator[EvidenceItem]:
    if seen is None:
        yield EvidenceItem(
            "breakers", None, "they are not shared, not reached, or not used lately", at
        )
    elif not seen:
        yield EvidenceItem("breakers", "the handler names none", _APP, at)
    for one in seen or ():
        yield EvidenceItem("breaker", str(one), "flow store", at)


def _fares(name: str, fared: PeerStats | None, now: datetime) -> EvidenceItem:
    return EvidenceItem(name, None if fared is None else str(fared), _LEDGER, now)


def _yes(value: bool) -> str:  # noqa: FBT001 - it is what is said
    return "yes" if value else "no"


_SILENT: Final = "the letter says nothing of why"
#: Characters of each thing that a sentence repeats.
_LONGEST: Final = 500


def _error(evidence: Evidence) -> str:
    """The failure in the words of the error, else of the letter."""
    letter = evidence.letter
    if letter is None or not letter.error_type:
        return _explanation(evidence)
    return (
        f"{letter.error_type}: {letter.error_message}"
        if letter.error_message
        else letter.error_type
    )


def _explanation(evidence: Evidence) -> str:
    """The explanation of the letter, which those of others need not have."""
    return explanation_of(evidence.failure) or _SILENT


def _of(name: str) -> Callable[[Evidence], str]:
    return lambda evidence: str(getattr(evidence.letter, name, "") or "")


def _breakers_text(evidence: Evidence) -> str:
    if evidence.breakers is None:
        return "no breaker that can be asked"
    return ", ".join(map(str, evidence.breakers)) or "no breaker"


def _mismatch(evidence: Evidence) -> str:
    """The mismatch of a stale command, else what its error says."""
    letter = evidence.letter
    if letter is None or letter.mismatch is None:
        return letter.error_message if letter else ""
    return f"{letter.mismatch} ({letter.mismatch.strategy_name})"


def _peers_text(name: str) -> Callable[[Evidence], str]:
    return lambda evidence: str(getattr(evidence, name) or "unknown")


#: What a sentence may repeat, by the name in braces.
SAID: Final[Mapping[str, Callable[[Evidence], str]]] = {
    "error": _error,
    "error_type": _of("error_type"),
    "error_code": _of("error_code"),
    "message": _of("error_message"),
    "category": _of("category"),
    "explanation": _explanation,
    "reason": lambda evidence: evidence.reason,
    "release": _of("version"),
    "problem": lambda evidence: evidence.target_problem,
    "breakers": _breakers_text,
    "handler_fares": _peers_text("handler_fares"),
    "group_fares": _peers_text("group_fares"),
    "mismatch": _mismatch,
    "payload": lambda evidence: evidence.fit.why,
}


def check_saying(given: Any) -> str:
    """The fault of a rule's sentence, in one sentence, or an empty string."""
    if not isinstance(given, str):
        return f"it must be a text, not {given!r}"
    try:
        parts = list(Formatter().parse(given))
    except ValueError as error:
        return f"{given!r} cannot be read ({error}); a brace itself is written twice"
    for _, name, form, conversion in parts:
        if name is not None and (name not in SAID or form or conversion):
            known = ", ".join(f"{{{one}}}" for one in SAID)
            return f"{{{name}}} is nothing that can be said; there are {known}"
    return ""


@lru_cache
def _parts(saying: str) -> tuple[tuple[str, str | None], ...]:
    """The texts of a rule's sentence, each with the name of what follows; rules are few."""
    return tuple((text, name) for text, name, _, _ in Formatter().parse(saying))


def say(saying: str, evidence: Evidence) -> str:
    """The sentence; what it repeats is one printable line of a bounded length."""
    said = ""
    for text, name in _parts(saying):
        said += text
        if name:
            said += printable(" ".join(SAID[name](evidence)[:_LONGEST].split()))
    return said.strip()
