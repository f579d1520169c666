"""How a terminal shows facts: tables, one fact with its runs, and lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from angzarr.analysis.ledger.export import json_text
from angzarr.cli.terminal import console, moment, pairs, safe
from angzarr.facts.fact import Fact
from angzarr.facts.fact_json import END, ENDED, NO_END, RESOLUTION, FactDetail, summary_of
from angzarr.facts.query import FactCount, FactField, FactPage
from angzarr.facts.resolution import ERROR, begins_act
from angzarr.runtime.text import printable

#: Characters of a message that a table or a line repeats.
_LONGEST: Final = 120
_COLUMNS: Final = ("when", "kind", "handler", "event", "tenant", "what", "resolved", "fact")
#: Width from which all columns can be read, and what `show` tells, too.
_ROOMY: Final = 140
_LEFT_OUT: Final = ("event", "tenant")
_WHOLE: Final = ("when", "kind")
_COLOURS: Final = {ERROR: "red", "cost": "yellow"}


def print_page(page: FactPage, links: Mapping[str, Fact]) -> None:
    """Print a page of facts."""
    out = console()
    if not page.facts:
        out.print("no facts")
        return
    table = Table()
    for name in _COLUMNS:
        if out.width >= _ROOMY or name not in _LEFT_OUT:
            table.add_column(name, no_wrap=name in _WHOLE, overflow="fold")
    for fact in page.facts:
        cells = _cells(fact, links)
        table.add_row(*(cells[str(column.header)] for column in table.columns))
    out.print(table)
    if page.next:
        out.print(safe(f"more: --after {page.next}"), soft_wrap=True)


def print_detail(detail: FactDetail) -> None:
    """Print one fact, its resolution both ways, and the runs of its event by its handler."""
    out, (fact, runs, told) = console(), detail
    known = {name: value for name, value in told.items() if not isinstance(value, dict | list)}
    known |= {"timestamp": moment(fact.at), "earlier_runs": None}
    out.print(pairs(known | _resolution(told)))
    if begins_act(fact) and not told["data"][ENDED]:
        out.print(Text(NO_END, style="yellow"))
    out.print(Text("data", style="bold"))
    out.print(safe(json_text(told["data"], indent=2, is_ascii=False)))
    if runs:
        earlier = ", the last of them" if told["earlier_runs"] else ""
        out.print(Text(f"runs of its event by its handler{earlier}", style="bold"))
        out.print(_runs(runs, fact))


def print_counts(counts: Sequence[FactCount], by: Sequence[FactField], most: int) -> None:
    """Print counts, of at most *most* rows."""
    out = console()
    if not counts:
        out.print("no facts")
        return
    table = Table(*(field.value.replace("_", " ") for field in by))
    table.add_column("facts", justify="right")
    for one in counts:
        table.add_row(*(safe(value or "-") for value in one.values), f"{one.facts:,}")
    out.print(table)
    if len(counts) == most:
        out.print(f"the {most} largest; --limit shows more")


def line_of(fact: Fact) -> str:
    """*fact* as one line that a terminal does not act on."""
    about = (fact.tool_id, fact.event_id and f"event {fact.event_id}", fact.tenant_id, _brief(fact))
    parts = (moment(fact.at), kind_of(fact), *(one for one in about if one))
    return printable("  ".join(parts))


def kind_of(fact: Fact) -> str:
    """The type and subtype of *fact*."""
    return f"{fact.type}/{fact.subtype}"


def _brief(fact: Fact) -> str:
    line = " ".join(summary_of(fact).split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


def _cells(fact: Fact, links: Mapping[str, Fact]) -> dict[str, Text]:
    return {
        "when": safe(moment(fact.at)),
        "kind": safe(kind_of(fact), _COLOURS.get(fact.type, "")),
        "handler": safe(fact.tool_id or ""),
        "event": safe(fact.event_id or ""),
        "tenant": safe(fact.tenant_id or ""),
        "what": safe(_brief(fact)),
        "resolved": safe(_resolved(fact, links)),
        "fact": safe(fact.id),
    }


def _resolved(fact: Fact, links: Mapping[str, Fact]) -> str:
    """What resolved an error, or ended an act."""
    by = links.get(fact.id)
    if begins_act(fact):
        return "no end" if by is None else kind_of(by)
    if fact.type != ERROR:
        return ""
    return "no" if by is None else kind_of(by)


def _resolution(told: Mapping[str, Any]) -> dict[str, object]:
    return {
        "resolved by": told["data"].get(RESOLUTION),
        "ended by": told["data"].get(END),
        "resolved": ", ".join(told["resolved_facts"]),
    }


def _runs(runs: Sequence[Fact], fact: Fact) -> Table:
    table = Table("when", "kind", "attempt", "what", "next run after", "fact")
    for one in runs:
        delay = one.data.get("delay_ms")
        table.add_row(
            safe(moment(one.at)),
            safe(kind_of(one), _COLOURS.get(one.type, "")),
            safe(one.data.get("retry_attempt", "")),
            safe(_brief(one)),
            safe("" if delay is None else f"{delay} ms"),
            safe("this" if one.id == fact.id else one.id),
        )
    return table
