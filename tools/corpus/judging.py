"""Judging: what a recorded line tells the classifier, and the classifier as it ships.

The one place that knows both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from pydantic import ValidationError
from tools.corpus.events import OrderPlaced
from tools.corpus.lines import Line
from tools.corpus.score import Score, score

from angzarr.analysis.classification.classify import Classifier, ReplayDelays, Unattended
from angzarr.analysis.classification.evidence import BreakerSeen, Evidence, Fit
from angzarr.analysis.classification.rules import built_in_rules
from angzarr.analysis.ledger.counts import PeerStats
from angzarr.analysis.ledger.entry import FailureClass
from angzarr.dead_letters.letter import DeadLetter, Distrusted, NoTarget, Refusal
from angzarr.resilience.breaker import Phase
from angzarr.settings.analysis import AnalysisSettings

#: How long after its failure a letter is judged, and the calls that each breaker's window has.
_LATER, _CALLS = timedelta(minutes=10), 100


def shipped() -> Classifier:
    """Return the classifier with the rules and settings that ship, and no others."""
    settings = AnalysisSettings()
    return Classifier(
        rules=built_in_rules(),
        pauses=ReplayDelays(backoff=settings.replay_backoff(), chance=lambda: 0.0),
        max_replays=settings.max_replays,
        longest_wait=settings.longest_wait,
        unattended=Unattended(oldest=settings.automatic.oldest),
    )


def predicted(
    lines: Iterable[Line], *, only_ledger: bool = False
) -> list[tuple[Line, FailureClass]]:
    """Return *lines* with what the classifier calls each.

    The ledger hears of events that failed and of replays: with *only_ledger* nothing is known of
    those that were handled at once.
    """
    classify, found = shipped(), []
    for line in lines:
        seen = evidence_of(line)
        if only_ledger and seen.handler_fares is not None:
            seen = replace(seen, handler_fares=replace(seen.handler_fares, handled=0))
        found.append((line, classify(seen).failure_class))
    return found


def score_of(found: Iterable[tuple[Line, FailureClass]]) -> Score[FailureClass]:
    """Return the score of what was predicted."""
    return score((line.label, said) for line, said in found)


def evidence_of(line: Line) -> Evidence:
    """Return what the classifier is given of *line*."""
    told, letter = line.situation, line.letter
    recent, group = told["handler_recent"], told["group_events"]
    running = list(told["running_releases"])
    return Evidence(
        failure=letter,
        now=letter.sent_to_dlq_at + _LATER,
        replays=told["replays"],
        target_problem=_problem(told),
        breakers=_breakers(told["breakers"]),
        handler_fares=PeerStats(events=group + recent["failed"], **recent),
        group_fares=PeerStats(events=group, failed=min(group, recent["failed"])),
        newer_release=told["failing_release"] in running[:-1],
        fit=_fit(letter),
    )


def _problem(told: Mapping[str, Any]) -> str:
    problem: str = told["target_problem"]
    if not problem:
        return ""
    if told["distrusted"]:
        return Distrusted(problem)
    missing = problem.startswith(("no handler", "the app knows no queue"))
    return NoTarget(problem) if missing else Refusal(problem)


def _breakers(told: Mapping[str, Mapping[str, Any]]) -> tuple[BreakerSeen, ...] | None:
    """Return the breakers, or None where one of them could not be asked."""
    if any(one["state"] == "unknown" for one in told.values()):
        return None
    return tuple(
        BreakerSeen(
            name=name,
            phase=Phase(one["state"]),
            calls=_CALLS,
            failures=round(_CALLS * one["error_share"]),
        )
        for name, one in told.items()
    )


def _fit(letter: DeadLetter) -> Fit:
    """Decode the event as its handler declares it, as production does."""
    if letter.event is None or letter.event.type != OrderPlaced.__name__:
        return Fit(why="its handler declares no type here")
    try:
        OrderPlaced.model_validate(letter.event.data)
    except ValidationError as error:
        return Fit(fits=False, why=f"{error.error_count()} fields do not fit")
    return Fit(fits=True)
