"""angzarr cost: what was spent, and how much of it on what failed (spec F2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

import click
from rich.table import Column, Table

from angzarr.cli.application import load_application
from angzarr.cli.terminal import (
    JSON,
    Moment,
    console,
    print_json,
    safe,
    standard_output,
)
from angzarr.facts.cost_budget import EACH, CostBudget
from angzarr.facts.cost_report import COST_FIELDS, report_csv, report_json
from angzarr.facts.query import LONGEST_PAGE, CostSum, FactField, FactQuery, FactReader

_FIELDS: Final = [field.value for field in COST_FIELDS]
_NO_BUDGETS: Final = (
    'no budgets: set costs.budgets, e.g. costs: {budgets: {all: {amount: "5000", currency: EUR}}}'
)


@click.group()
def cost() -> None:
    """Costs: what was spent, and how much of it on what failed."""


class _Fields(click.ParamType[tuple[FactField, ...]]):
    """Names of fields with commas between them."""

    name = "fields"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[FactField, ...]:
        """The fields that *value* names, each once."""
        names = [name.strip() for name in str(value).split(",") if name.strip()]
        for name in names:
            if name not in _FIELDS:
                self.fail(f"{name!r} is none of {', '.join(_FIELDS)}", param, ctx)
        return tuple(dict.fromkeys(FactField(name) for name in names))


@cost.command()
@click.option("--by", type=_Fields(), default="tenant,tool", show_default=True,
              help=f"What the sums are of: {', '.join(_FIELDS)}.")  # fmt: skip
@click.option("--tenant", "tenant_id", help="Of this tenant.")
@click.option("--tool", "tool_id", help="Of this handler.")
@click.option("--event", "event_id", help="Of this event.")
@click.option("--since", type=Moment(), help="Spent at or after; 30d: in the last thirty days.")
@click.option("--until", type=Moment(), help="Spent before.")
@click.option("--limit", type=click.IntRange(1, LONGEST_PAGE), default=LONGEST_PAGE)
@click.option("--format", "form", type=click.Choice(["table", "csv", "json"]), default="table",
              show_default=True)  # fmt: skip
@click.option("--json", "form", flag_value="json", help="The same as --format json.")
@click.pass_obj
def report(
    app_name: str | None,
    /,
    *,
    by: tuple[FactField, ...],
    limit: int,
    form: str,
    **wanted: Any,
) -> None:
    """Add up costs by currency, the largest sum first; `failed` is what failed runs spent of it.

    The cause is the error code of the failed run. Costs of runs that did not fail have none.
    """
    with closing(load_application(app_name).open_fact_store()) as reader:
        sums = reader.costs(FactQuery(type="cost", **wanted), by, limit=limit)
    _PRINTERS[form](by, sums)
    if len(sums) == limit:
        click.echo(f"more sums than {limit}: narrow them down, by --tenant or --since", err=True)


def _print_table(by: Sequence[FactField], sums: Sequence[CostSum]) -> None:
    out = console()
    if not sums:
        out.print("no costs: handlers say what they spend with ctx.cost(…)")
        return
    columns = [Column(field.value, overflow="fold") for field in by]
    numbers = [Column(name, justify="right", no_wrap=True) for name in ("amount", "failed")]
    counts = [Column(name, justify="right", no_wrap=True) for name in ("costs", "of them failed")]
    table = Table(*columns, *numbers, "currency", *counts)
    for one in sums:
        values = [safe("" if value is None else value) for value in one.values]
        amounts = [f"{one.amount:f}", f"{one.failed:f}", one.currency]
        table.add_row(*values, *amounts, f"{one.facts:,}", f"{one.failed_facts:,}")
    out.print(table)


def _print_csv(by: Sequence[FactField], sums: Sequence[CostSum]) -> None:
    out = standard_output()
    for line in report_csv(by, sums):
        out.write(line)
    out.flush()


def _print_report_json(by: Sequence[FactField], sums: Sequence[CostSum]) -> None:
    print_json({"costs": report_json(by, sums)})


_PRINTERS: Final[dict[str, Callable[[Sequence[FactField], Sequence[CostSum]], None]]] = {
    "table": _print_table,
    "csv": _print_csv,
    "json": _print_report_json,
}


@cost.command()
@JSON
@click.pass_obj
def budgets(app_name: str | None, /, *, as_json: bool) -> None:
    """Show each budget of costs, and what is spent of it; of budgets of each, the largest."""
    ops = load_application(app_name)
    known = ops.settings.costs.named_budgets()
    now = datetime.now(UTC)
    told = []
    if known:
        with closing(ops.open_fact_store()) as reader:
            told = [_told(reader, budget, now) for budget in known]
    if as_json:
        print_json({"budgets": told})
        return
    if not told:
        click.echo(_NO_BUDGETS)
        return
    table = Table("budget", "tenant", "handler", "per", "amount", "currency", "spent", "spent by")
    for one in told:
        table.add_row(*(safe("" if value is None else value) for value in one.values()))
    console().print(table)


def _told(reader: FactReader, budget: CostBudget, now: datetime) -> dict[str, Any]:
    most, by = _most_spent(reader, budget, now)
    return {
        "budget": budget.name,
        "tenant": budget.tenant,
        "tool": budget.tool,
        "per": budget.per.value,
        "amount": f"{budget.amount:f}",
        "currency": budget.currency,
        "spent": f"{most:f}",
        "by": by or None,
    }


def _most_spent(reader: FactReader, budget: CostBudget, now: datetime) -> tuple[Decimal, str]:
    """The most that is spent of *budget*, and by whom."""
    by = [FactField.TENANT] * (budget.tenant is not None) + [FactField.TOOL] * (
        budget.tool is not None
    )
    since = budget.since(now)
    wanted = FactQuery(
        type="cost",
        since=since,
        tenant_id=None if budget.tenant == EACH else budget.tenant,
    )
    for one in reader.costs(wanted, by):
        whose = dict(zip(by, one.values, strict=True))
        scope = budget.scope(whose.get(FactField.TENANT), whose.get(FactField.TOOL) or "", now)
        if scope is not None and one.currency == budget.currency:
            return one.amount, ", ".join(filter(None, one.values))
    return Decimal(0), ""
