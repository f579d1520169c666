"""Saying: the sentence by which a rule tells why, filled in with what is known. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from string import Formatter
from typing import Any, Final

from angzarr.analysis.classification.evidence import Evidence
from angzarr.analysis.ledger.entry import explanation_of
from angzarr.runtime.text import printable

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


def _breakers(evidence: Evidence) -> str:
    if evidence.breakers is None:
        return "no breaker that can be asked"
    return ", ".join(map(str, evidence.breakers)) or "no breaker"


def _mismatch(evidence: Evidence) -> str:
    """Return where a stale command believed its aggregate to be, else what its error says."""
    letter = evidence.letter
    if letter is None or letter.mismatch is None:
        return letter.error_message if letter else ""
    return f"{letter.mismatch} ({letter.mismatch.strategy_name})"


def _fares(name: str) -> Callable[[Evidence], str]:
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
    "breakers": _breakers,
    "handler_fares": _fares("handler_fares"),
    "group_fares": _fares("group_fares"),
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
    """Return the sentence; what it repeats is one printable line of a bounded length."""
    said = ""
    for text, name, _, _ in Formatter().parse(saying):
        said += text
        if name:
            said += printable(" ".join(SAID[name](evidence)[:_LONGEST].split()))
    return said.strip()
