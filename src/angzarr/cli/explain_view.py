"""Why an entry has its class, for people."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich.table import Table

from angzarr.analysis.classify import Explanation
from angzarr.analysis.clues import Clue
from angzarr.analysis.entry import Entry
from angzarr.analysis.explanation_json import deciding
from angzarr.analysis.rules import Tried
from angzarr.analysis.transition import Action
from angzarr.cli.entry_view import SHORT_ID, console, safe
from angzarr.cli.explanation import span_of


def print_explanation(
    entry: Entry, found: Explanation, told: Sequence[Clue], now: datetime
) -> None:
    """Print the decision, the rules in order, and the evidence with its age."""
    out = console()
    kept = f"{entry.failure_class or 'not yet classified'}, {entry.status}"
    out.print(safe(f"entry {entry.id[:SHORT_ID]} is {kept}: {entry.evidence}"))
    out.print(safe(f"now it would be {_decision(found)}", "bold"))
    out.print(safe(found.decision.evidence))
    if found.overruled:
        out.print(safe(f"overruled: {found.overruled}", "yellow"))
    if found.tried:
        out.print(_rules(found.tried))
    out.print(_evidence(told, now))


def _decision(found: Explanation) -> str:
    decision, rule = found.decision, deciding(found.tried)
    at = ""
    if decision.action in {Action.REPLAY, Action.WAIT}:
        at = f" in {span_of(decision.delay)}"
    by = f", by rule {rule.rule.name} of {rule.rule.source}" if rule else ""
    return f"{decision.failure_class}: {decision.action}{at}{by}"


def _rules(tried: Sequence[Tried]) -> Table:
    """Draw the rules up to the one that decides; those behind it are not asked."""
    table = Table("", "rule", "says", "because")
    chosen = deciding(tried)
    for one in tried:
        decides = one is chosen
        style = "green" if decides else "red" if one.failed else "dim"
        says = f"{one.verdict.failure_class}, {one.verdict.action}" if one.verdict else ""
        mark = "✓" if decides else "!" if one.failed else "✗"
        table.add_row(mark, *(safe(text, style) for text in (one.rule.name, says, one.why)))
        if decides:
            break
    return table


def _evidence(told: Sequence[Clue], now: datetime) -> Table:
    table = Table("evidence", "", "from", "age")
    for name, says, source, at in told:
        age = span_of(max(now - at, now - now)) if at else ""
        table.add_row(
            safe(name), safe("unknown", "yellow") if says is None else safe(says), safe(source), age
        )
    return table
