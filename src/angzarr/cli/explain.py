"""angzarr dlq explain: which class an entry has now, by which rule, and all that is known."""

from __future__ import annotations

from contextlib import ExitStack

import click

from angzarr.analysis.clues import clues
from angzarr.analysis.explanation_json import explanation_json
from angzarr.analysis.filing import as_stored
from angzarr.cli import explain_view
from angzarr.cli.analyze import open_gathering, open_replayer
from angzarr.cli.application import load_application
from angzarr.cli.completion import entry_ids
from angzarr.cli.entry_choice import JSON, find
from angzarr.cli.entry_json import print_json


@click.command()
@click.argument("entry", shell_complete=entry_ids)
@click.option("--all", "all_rules", is_flag=True, help="Every rule, also those that do not fit.")
@JSON
@click.pass_obj
def explain(app_name: str | None, entry: str, *, all_rules: bool, as_json: bool) -> None:
    """Tell how ENTRY (its id, or how it begins) would be classified now, and why.

    It changes nothing, and asks whoever the analysis worker would ask.
    """
    app = load_application(app_name)
    with ExitStack() as doors:
        replayer = open_replayer(app, doors)
        gathering = open_gathering(app, replayer, doors)
        detail = replayer.ledger.open(find(replayer.ledger, entry).id)
        if detail is None:
            msg = f"entry {entry} was removed meanwhile"
            raise click.ClickException(msg)
        (evidence,) = gathering.gather([as_stored(detail.entry, detail.failure)])
    found = app.dlq_classifier(lambda: 0.0).explain(evidence)
    told = clues(evidence)
    if as_json:
        print_json(explanation_json(detail.entry, found, told))
    else:
        explain_view.print_explanation(detail.entry, found, told, evidence.now, all_rules=all_rules)
