"""angzarr dlq explain: which class an entry has now, by which rule, and all that is known.

Why an entry has its class, for people.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from datetime import datetime

import click
from rich.console import Console
from rich.table import Table

from angzarr.analysis.classification.classify import ExplainedDecision, deciding, explanation_json
from angzarr.analysis.classification.evidence import EvidenceItem, evidence_items
from angzarr.analysis.classification.rules import RuleTrial
from angzarr.analysis.ledger.entry import Entry
from angzarr.analysis.ledger.filing_plan import as_stored
from angzarr.analysis.ledger.transition import Action
from angzarr.cli.application import entry_ids, load_application
from angzarr.cli.dlq.entries import Abridged, print_error
from angzarr.cli.dlq.selection import find
from angzarr.cli.policy.view import span_of
from angzarr.cli.terminal import JSON, SHORT_ID, console, print_json, safe
from angzarr.wiring.analysis_worker import open_gathering, open_replayer


@click.command()
@click.argument("entry", shell_complete=entry_ids)
@click.option("--all", "all_rules", is_flag=True, help="Every rule, also those that do not fit.")
@JSON
@click.pass_obj
def explain(app_name: str | None, entry: str, *, all_rules: bool, as_json: bool) -> None:
    """Tell how ENTRY (its id, or how it begins) would be classified now, and why.

    It changes nothing, and asks the same sources as the analysis worker.
    """
    ops = load_application(app_name)
    with ExitStack() as doors:
        replayer = open_replayer(ops, doors)
        gathering = open_gathering(ops, replayer, doors)
        detail = replayer.ledger.open(find(replayer.ledger, entry).id)
        if detail is None:
            msg = f"entry {entry} was removed meanwhile"
            raise click.ClickException(msg)
        (evidence,) = gathering.gather([as_stored(detail.entry, detail.failure)])
    found = ops.dlq_classifier(lambda: 0.0).explain(evidence)
    told = evidence_items(evidence)
    if as_json:
        print_json(explanation_json(detail.entry, found, told))
    else:
        print_explanation(detail.entry, found, told, evidence.now, all_rules=all_rules)


def print_explanation(
    entry: Entry,
    found: ExplainedDecision,
    told: Sequence[EvidenceItem],
    now: datetime,
    *,
    all_rules: bool = False,
) -> None:
    """Print the decision, its rule or all of them in order, and the evidence with its age."""
    out, brief = console(), Abridged(entry.error_message)
    kept = f"{entry.failure_class or 'not yet classified'}, {entry.status}"
    out.print(safe(f"entry {entry.id[:SHORT_ID]} is {kept}: {brief(entry.evidence)}"))
    out.print(safe(f"now it would be {_decision(found)}", "bold"))
    out.print(safe(brief(found.decision.evidence)))
    if found.overruled:
        out.print(safe(f"overruled: {found.overruled}", "yellow"))
    if found.tried:
        out.print(_rules(found.tried, brief, all_rules=all_rules))
        if not all_rules:
            _print_number_of_others(out, found.tried)
    out.print(_evidence(told, now, brief))
    if brief.cuts:
        print_error(entry)


def _decision(found: ExplainedDecision) -> str:
    decision, rule = found.decision, deciding(found.tried)
    at = ""
    if decision.action in {Action.REPLAY, Action.WAIT}:
        at = f" in {span_of(decision.delay)}"
    by = f", by rule {rule.rule.name} of {rule.rule.source}" if rule else ""
    return f"{decision.failure_class}: {decision.action}{at}{by}"


def _rules(tried: Sequence[RuleTrial], brief: Abridged, *, all_rules: bool) -> Table:
    """Draw all rules in order; or the one that decides, and those that broke before it."""
    table = Table("", "rule", "says", "because")
    chosen = deciding(tried)
    asked = _asked(tried)
    shown = tried if all_rules else [*filter(None, [chosen]), *(one for one in asked if one.failed)]
    for one in shown:
        decides = one is chosen
        style = "green" if decides else "red" if one.failed else "dim"
        says = f"{one.verdict.failure_class}, {one.verdict.action}" if one.verdict else ""
        mark = "✓" if decides else "!" if one.failed else "✗" if not one.verdict else "·"
        why = one.why if one.verdict is None or decides else f"comes later: {one.why}"
        table.add_row(mark, *(safe(text, style) for text in (one.rule.name, says, brief(why))))
    return table


def _asked(tried: Sequence[RuleTrial]) -> Sequence[RuleTrial]:
    """The rules before the one that decides; those behind it are not asked."""
    chosen = deciding(tried)
    return tried[: tried.index(chosen)] if chosen else tried


def _print_number_of_others(out: Console, tried: Sequence[RuleTrial]) -> None:
    others = sum(1 for one in _asked(tried) if not one.failed)
    if others:
        noun = "rule" if others == 1 else "rules"
        where = "before it " if deciding(tried) else ""
        out.print(safe(f"{others} {noun} {where}did not fit; --all shows every rule", "dim"))


def _evidence(told: Sequence[EvidenceItem], now: datetime, brief: Abridged) -> Table:
    table = Table("evidence", "", "from", "age")
    for name, says, source, at in told:
        age = span_of(max(now - at, now - now)) if at else ""
        table.add_row(
            safe(name),
            safe("unknown", "yellow") if says is None else safe(brief(says)),
            safe(source),
            age,
        )
    return table
