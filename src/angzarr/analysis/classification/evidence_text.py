"""Evidence view: evidence for people, as a list of items and as the sentence of a rule. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from string import Formatter
from typing import Any, Final, NamedTuple

from angzarr.analysis.classification.evidence import BreakerSeen, Evidence
from angzarr.analysis.ledger.counts import PeerStats
from angzarr.analysis.ledger.failure import explanation_of
from angzarr.runtime.text import printable

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
    """Return what failed, in the words of the error, else of the letter."""
    letter = evidence.letter
    if letter is None or not letter.error_type:
        return _explanation(evidence)
    return (
        f"{letter.error_type}: {letter.error_message}"
        if letter.error_message
        else letter.error_type
    )


def _explanation(evidence: Evidence) -> str:
    """Return what the letter says of why, which those of others need not."""
    return explanation_of(evidence.failure) or _SILENT


def _of(name: str) -> Callable[[Evidence], str]:
    return lambda evidence: str(getattr(evidence.letter, name, "") or "")


def _breakers_text(evidence: Evidence) -> str:
    if evidence.breakers is None:
        return "no breaker that can be asked"
    return ", ".join(map(str, evidence.breakers)) or "no breaker"


def _mismatch(evidence: Evidence) -> str:
    """Return where a stale command believed its aggregate to be, else what its error says."""
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
    """Return in one sentence what is wrong with a rule's sentence, or an empty string."""
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


def say(saying: str, evidence: Evidence) -> str:
    """The sentence; what it repeats is one printable line of a bounded length."""
    said = ""
    for text, name, _, _ in Formatter().parse(saying):
        said += text
        if name:
            said += printable(" ".join(SAID[name](evidence)[:_LONGEST].split()))
    return said.strip()
