"""angzarr projection reset: a projection begins anew, with an empty read model (spec P4)."""

from __future__ import annotations

import shlex

import click

from angzarr.cli.application import load_application
from angzarr.cli.dlq.selection import JSON, YES
from angzarr.cli.projection.selection import find, opened, opened_books
from angzarr.cli.standard_output import print_json
from angzarr.projections.lag import bookless_of
from angzarr.projections.ordered_handler import Ordered
from angzarr.wiring.analysis_worker import person
from angzarr.wiring.application import Application
from angzarr.wiring.projections import reset_projection


@click.command()
@click.argument("name")
@click.option("--force", is_flag=True, help="Also where events it has handled cannot come again.")
@YES
@JSON
@click.pass_obj
def reset(app_name: str | None, name: str, *, force: bool, yes: bool, as_json: bool) -> None:
    """Let NAME begin anew, without read model.

    Its checkpoint is cleared and its lanes begin anew; what is parked stays parked. Of another
    handler than a projection the effects stay.
    """
    app = load_application(app_name)
    one = find(app, name)
    if not force:
        _check_books(app, one)
    if not yes:
        with opened(app) as stores:
            (summary,) = stores.lanes.summaries([one.task])
        what = "its read model is emptied" if one.order.moves else "its effects stay as they are"
        asked = f"Reset {one.name}: {what}, and {summary.lanes} lanes begin anew?"
        click.confirm(asked, abort=True, err=True)
    lanes = reset_projection(app, one.task, by=person())
    if as_json:
        print_json({"name": one.name, "lanes": lanes})
    else:
        click.echo(f"{one.name} is reset: {lanes} lanes begin anew. {_what_now(one)}")


def _check_books(app: Application, one: Ordered) -> None:
    """Refuse where lanes would wait for events that nobody has any more."""
    with opened(app) as stores, opened_books(app) as books:
        lost = bookless_of(
            one.task, one.order, store=books, lanes=stores.lanes, checkpoints=stores.checkpoints
        )
    if lost:
        msg = (
            f"{one.name} has handled {lost} events or more that are in no event book: nobody could"
            " send them again, and what follows them in their aggregates would wait for ever."
            " Publish them again afterwards, or skip those gaps, and say --force"
        )
        raise click.ClickException(msg)


def _what_now(one: Ordered) -> str:
    if one.order.moves:
        return f"Fill it with: angzarr projection rebuild {shlex.quote(one.name)}"
    return "It takes events again from the first one of each aggregate on, as they come"
