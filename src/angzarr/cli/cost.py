"""angzarr cost: what was spent, and how much of it on what failed (spec F2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import Any, Final

import click
from rich.table import Column, Table

from angzarr.cli.application import load_application
from angzarr.cli.terminal import (
    JSON,
    Moment,
    console,
    moment,
    print_json,
    safe,
    standard_output,
)
from angzarr.facts.cost_budget import CostBudget
from angzarr.facts.cost_budget_use import CostBudgetUse, use_json, uses_of
from angzarr.facts.cost_report import COST_FIELDS, report_csv, report_json
from angzarr.facts.query import LONGEST_PAGE, CostSum, FactField, FactQuery
from angzarr.runtime.text import printable

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
    """Show each budget of costs: what is spent of it, what is left, and when it begins anew.

    Of a budget that each tenant or handler has, the shares of which most is spent.
    """
    ops = load_application(app_name)
    known = ops.settings.costs.named_budgets()
    uses: list[CostBudgetUse] = []
    if known:
        with closing(ops.open_fact_store()) as reader:
            uses = uses_of(reader, known, datetime.now(UTC))
    if as_json:
        print_json({"budgets": [use_json(use) for use in uses]})
    elif uses:
        _print_budgets(uses)
    else:
        click.echo(_NO_BUDGETS)


def _print_budgets(uses: Sequence[CostBudgetUse]) -> None:
    names = [Column(name, overflow="fold") for name in ("budget", "tenant", "handler")]
    numbers = [Column(name, justify="right", no_wrap=True) for name in ("spent", "left", "of")]
    table = Table(*names, *numbers, "currency", "per", Column("begins anew", no_wrap=True))
    for use in uses:
        budget = use.budget
        of = [f"{budget.amount:f}", budget.currency, budget.per.value, moment(use.until)]
        for one in use.shares:
            whose = [safe(one.tenant_id or ""), safe(one.tool_id or "")]
            table.add_row(safe(budget.name), *whose, f"{one.spent:f}", f"{one.left:f}", *of)
        if not use.shares:
            whose = [safe(budget.tenant or ""), safe(budget.tool or "")]
            table.add_row(safe(budget.name), *whose, "0", f"{budget.amount:f}", *of)
    console().print(table)
    for use in uses:
        if use.more:
            click.echo(
                f"{printable(use.budget.name)}: there may be more shares than these; angzarr cost"
                f" report --by {_by(use.budget)} --since {use.since:%Y-%m-%dT%H:%M:%SZ} has them"
            )


def _by(budget: CostBudget) -> str:
    given = (("tenant", budget.tenant), ("tool", budget.tool))
    return ",".join(name for name, value in given if value is not None)
