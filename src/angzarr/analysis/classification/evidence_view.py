"""Clues: evidence for people: each thing that is known, from where, and of when. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from angzarr.analysis.classification.evidence import BreakerSeen, Evidence
from angzarr.analysis.ledger.similar_failures import Fared

_LETTER = "letter"
_LEDGER = "ledger"
_APP = "this app"


class Clue(NamedTuple):
    """One thing that is known, or that is not: then `says` is None and `source` tells why."""

    name: str
    says: str | None
    source: str
    #: Of when it is; None: it does not age.
    at: datetime | None = None


def clues(evidence: Evidence) -> list[Clue]:
    """Return all that is known, and all that is not."""
    return [*_of_letter(evidence), *_of_now(evidence)]


def _of_letter(evidence: Evidence) -> Iterator[Clue]:
    letter, at = evidence.letter, evidence.failed_at
    yield Clue("reason", evidence.reason, _LETTER, at)
    if letter is None:
        yield Clue("error", None, "the letter cannot be read")
        return
    said = f"{letter.error_type}: {letter.error_message}".strip(": ")
    yield Clue("error", said or letter.explanation, _LETTER, at)
    yield Clue("category, code", f"{letter.category}, {letter.error_code}", _LETTER, at)
    own = evidence.own_error
    yield Clue("an error of its own", None if own is None else _yes(own), _LETTER)
    yield Clue("release that failed", letter.version or None, _LETTER, at)
    again = ", the last one failed" if evidence.failed_again else ""
    yield Clue("replays", f"{evidence.replays}{again}", _LEDGER, evidence.now)


def _of_now(evidence: Evidence) -> Iterator[Clue]:
    now = evidence.now
    yield Clue("stands against a replay", evidence.target_problem or "nothing", _APP, now)
    yield from _breakers(evidence.breakers, evidence.breakers_at)
    yield Clue("dependency", evidence.dependency.value, "breakers, group", now)
    yield _fares("other events of the handler", evidence.handler_fares, now)
    passing = evidence.others_pass
    yield Clue("others pass", None if passing is None else _yes(passing), _LEDGER, now)
    yield _fares("the group", evidence.group_fares, now)
    newer = evidence.newer_release
    yield Clue("a newer release runs", None if newer is None else _yes(newer), "fleet", now)
    fits = evidence.fit.fits
    says = None if fits is None else f"{_yes(fits)}: {evidence.fit.why}"
    yield Clue("the event decodes", says, _APP if says else evidence.fit.why, now)
    yield Clue("undone by", evidence.undone_by or None, _APP)


def _breakers(seen: tuple[BreakerSeen, ...] | None, at: datetime | None) -> Iterator[Clue]:
    if seen is None:
        yield Clue("breakers", None, "they are not shared, not reached, or not used lately", at)
    elif not seen:
        yield Clue("breakers", "the handler names none", _APP, at)
    for one in seen or ():
        yield Clue("breaker", str(one), "flow store", at)


def _fares(name: str, fared: Fared | None, now: datetime) -> Clue:
    return Clue(name, None if fared is None else str(fared), _LEDGER, now)


def _yes(value: bool) -> str:  # noqa: FBT001 - it is what is said
    return "yes" if value else "no"
