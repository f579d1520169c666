"""angzarr fact: list, show, follow, count and export facts (spec F1)."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import click

from angzarr.analysis.ledger.export import json_text
from angzarr.cli.dlq.letters_move import Tell, progress
from angzarr.cli.fact.prune import prune
from angzarr.cli.fact.selection import counted, filtered, opened_reader, page_of
from angzarr.cli.fact.view import line_of, print_counts, print_detail, print_page
from angzarr.cli.ledger import new_file
from angzarr.cli.terminal import JSON, ByteSink, Span, print_json, standard_output
from angzarr.clock import SystemClock
from angzarr.errors import Unavailable
from angzarr.facts.fact import Fact
from angzarr.facts.fact_json import (
    counts_json,
    detail_of,
    fact_page_json,
    links_of,
    resolved_lines,
)
from angzarr.facts.follower import FactFollower
from angzarr.facts.query import (
    COUNT_FIELDS,
    LONGEST_PAGE,
    FactField,
    FactOrder,
    FactQuery,
    FactReader,
    of_last_day,
)
from angzarr.runtime.text import printable
from angzarr.wiring.analysis_worker import stopped_by_signal

_ORDERS: Final = (FactOrder.NEWEST.value, FactOrder.OLDEST.value)


@click.group()
def fact() -> None:
    """Facts: what happened to each delivery, and what it cost."""


@fact.command("list")
@filtered
@click.option("--order", type=click.Choice(_ORDERS), default=_ORDERS[0], show_default=True)
@click.option("--limit", type=click.IntRange(1, LONGEST_PAGE), default=50, show_default=True)
@click.option("--after", default="", help="Cursor that the page before printed.")
@JSON
@click.pass_obj
def list_(
    app_name: str | None, /, *, order: str, limit: int, after: str, as_json: bool, **wanted: Any
) -> None:
    """List facts, the newest first."""
    with opened_reader(app_name) as reader:
        asked = FactQuery(**wanted)
        page = page_of(reader, asked, order=FactOrder(order), limit=limit, after=after)
        links = links_of(reader, page.facts)
    if as_json:
        print_json(fact_page_json(page, links))
    else:
        print_page(page, links)


@fact.command()
@click.argument("fact_id", metavar="FACT")
@JSON
@click.pass_obj
def show(app_name: str | None, fact_id: str, *, as_json: bool) -> None:
    """Show FACT (its id), what it resolved or was resolved by, and all runs of its event."""
    with opened_reader(app_name) as reader:
        found = reader.get(fact_id)
        if found is None:
            msg = f"there is no fact {fact_id!r}; `angzarr fact list` shows them"
            raise click.ClickException(msg)
        detail = detail_of(reader, found)
    if as_json:
        print_json(detail.told)
    else:
        print_detail(detail)


@fact.command()
@filtered
@click.option("-n", "--lines", type=click.IntRange(0, LONGEST_PAGE), default=20, show_default=True,
              help="Begin with so many of the last facts.")  # fmt: skip
@click.option("-f", "--follow", is_flag=True, help="Go on until Ctrl-C or SIGTERM.")
@click.option("--every", type=Span(), default="1s", show_default=True, help="Pause between looks.")
@JSON
@click.pass_obj
def tail(
    app_name: str | None,
    /,
    *,
    lines: int,
    follow: bool,
    every: timedelta,
    as_json: bool,
    **wanted: Any,
) -> None:
    """Print facts in the order of their arrival, one line each; JSON lines with --json.

    A database that goes away while it is followed is waited for.
    """
    with opened_reader(app_name) as reader, stopped_by_signal() as stop:
        follower = FactFollower(reader, FactQuery(**wanted), SystemClock())
        _print(reader, follower.before(lines), as_json=as_json)
        is_away = False
        while follow and not stop.wait(every.total_seconds()):
            try:
                for some in follower.look():
                    _print(reader, some, as_json=as_json)
                    if stop.is_set():
                        break
            except Unavailable as error:
                if not is_away:
                    click.echo(f"{printable(error)}; trying again", err=True)
                is_away = True
            else:
                is_away = False


@fact.command()
@counted
@click.option("--by", type=click.Choice([one.value for one in COUNT_FIELDS]), multiple=True,
              help="Count by this field; repeatable.  [default: type, subtype]")  # fmt: skip
@click.option("--limit", type=click.IntRange(1, LONGEST_PAGE), default=100, show_default=True,
              help="Rows at most, those of most facts.")  # fmt: skip
@JSON
@click.pass_obj
def stats(
    app_name: str | None,
    /,
    *,
    by: tuple[str, ...],
    person: str | None,
    limit: int,
    as_json: bool,
    **wanted: Any,
) -> None:
    """Count facts: of the last day, unless --since, --event, --entity or --trace says more."""
    fields = [FactField(one) for one in dict.fromkeys(by)] or [FactField.TYPE, FactField.SUBTYPE]
    asked = of_last_day(FactQuery(**wanted, by=person), datetime.now(UTC))
    with opened_reader(app_name) as reader:
        counts = reader.stats(asked, fields, limit=limit)
    if as_json:
        print_json({"since": asked.since, "until": asked.until,
                    "counts": counts_json(counts, fields)})  # fmt: skip
    else:
        print_counts(counts, fields, limit)


@fact.command()
@filtered
@click.option("--limit", type=click.IntRange(1), help="No more facts than these.")
@click.option("--to", "target", default="-", metavar="FILE", help="A new file; -: standard output.")
@click.pass_obj
def export(app_name: str | None, /, *, limit: int | None, target: str, **wanted: Any) -> None:
    """Write facts as JSON lines, the oldest first.

    A file has its name once it is whole. Exits with 1 if it was stopped.
    """
    with opened_reader(app_name) as reader, stopped_by_signal() as stop:
        found = _oldest_first(reader, FactQuery(**wanted), limit)
        with progress("exporting", None, bar=target != "-", what="facts") as tell:
            lines = _lines(reader, found, stop, tell)
            if target == "-":
                written = _write(standard_output(), lines)
            else:
                with new_file(Path(target)) as file:
                    written = _write(file, lines)
    click.echo(f"exported {written} facts", err=True)


def _print(reader: FactReader, facts: Sequence[Fact], *, as_json: bool) -> None:
    """Print all of *facts*, or none where the database is away."""
    if as_json:
        lines = [json_text(told) for told in resolved_lines(reader, facts)]
    else:
        lines = [line_of(one) for one in facts]
    for line in lines:
        click.echo(line)


def _oldest_first(reader: FactReader, wanted: FactQuery, limit: int | None) -> Iterator[Fact]:
    """All facts of *wanted*, page by page, *limit* at most."""
    after, left = "", limit
    while left is None or left > 0:
        size = LONGEST_PAGE if left is None else min(left, LONGEST_PAGE)
        page = reader.find(wanted, order=FactOrder.OLDEST, limit=size, after=after)
        yield from page.facts
        after, left = page.next, None if left is None else left - len(page.facts)
        if not after:
            return


def _lines(
    reader: FactReader, facts: Iterable[Fact], stop: threading.Event, tell: Tell
) -> Iterator[bytes]:
    for number, told in enumerate(resolved_lines(reader, facts)):
        if stop.is_set():
            msg = f"stopped after {number} facts; run it again"
            raise click.ClickException(msg)
        yield f"{json_text(told)}\n".encode()
        tell(number + 1)


def _write(file: ByteSink, lines: Iterable[bytes]) -> int:
    """Write *lines*; return how many they were."""
    number = 0
    for number, line in enumerate(lines, 1):  # noqa: B007 - the last one counts
        file.write(line)
    file.flush()
    return number


fact.add_command(prune)
