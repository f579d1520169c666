"""One row must not end a command in a traceback, in whatever time zone its caller sits."""

from __future__ import annotations

import csv
import io
import json
import sys
from functools import partial

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, Phase, example, given, settings
from tests.every_view import look_for_alerts
from tests.hostile_letters import ZONES, failures, local_zone, worst
from tests.unit.cli.ledger_app import FakeApp

from angzarr.cli.main import main
from angzarr.clock import SystemClock
from apps import module_with

#: What fails is shown as it was drawn: to make it small takes minutes.
rows = partial(
    settings,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture
def apps(tmp_path, monkeypatch):
    """Make apps whose ledgers begin empty; the last one is what commands find."""
    made = []

    def make():
        folder = tmp_path / f"{len(made)}"
        folder.mkdir()
        made.append(FakeApp(folder))
        monkeypatch.setitem(sys.modules, "shop_for_test", module_with(app=made[-1]))
        return made[-1]

    return make


def run(*arguments):
    return asked(*arguments).stdout


def asked(*arguments):
    """Run a command at a terminal that cannot write what letters hold."""
    answer = CliRunner(charset="latin-1").invoke(main, ["-A", "shop_for_test", *arguments])
    assert answer.exception is None, (arguments, answer.exception, answer.output)
    return answer


@rows(max_examples=3)
@given(failures)
@example(worst())
def test_every_row_is_shown_by_every_command(apps, filed):
    app = apps()
    ledger, groups, alerts = app.open_ledger(), app.open_groups(), app.open_alerts()
    try:
        entries = {one.id for one in ledger.add_failed_events(filed)}
        look_for_alerts(ledger=ledger, groups=groups, alerts=alerts, clock=SystemClock())
    finally:
        for store in (ledger, groups, alerts):
            store.close()
    for zone in ZONES:
        with local_zone(zone):
            groups = show_lists(entries)
    with local_zone(ZONES[0]):
        show_each(entries, groups)
        export(entries)


def show_lists(entries):
    for shown in ("stats", "alerts list"):
        assert run("dlq", *shown.split())
        json.loads(run("dlq", *shown.split(), "--json"))
    assert len(walked("list", "entries")) == len(entries)
    return walked("groups --all", "groups")


def show_each(entries, groups):
    for entry in sorted(entries)[::5]:
        for shown in ("show", "explain"):
            assert run("dlq", shown, entry)
            json.loads(run("dlq", shown, entry, "--json"))
    for group in groups:
        told = run("dlq", "group", group["address"])
        (command,) = [line for line in told.splitlines() if "dlq list --group" in line]
        found = json.loads(run(*command.split()[1:], "--json"))
        assert len(found["entries"]) == group["entries"]


def export(entries):
    for options in ((), ("--letters",)):
        lines = asked("ledger", "export", *options).stdout_bytes.split(b"\n")[:-1]
        assert len([json.loads(line) for line in lines]) == len(entries)
    cells = io.StringIO(asked("ledger", "export", "--format", "csv").stdout_bytes.decode())
    assert len(list(csv.DictReader(cells))) == len(entries)


def walked(command, key):
    """Return all rows of *command*, by the cursors that it prints for people and programs alike."""
    found, after = [], ""
    while True:
        arguments = ("dlq", *command.split(), "--limit", "20", "--after", after)
        told, page = run(*arguments), json.loads(run(*arguments, "--json"))
        found += page[key]
        if not page["next"]:
            return found
        assert f"more: --after {page['next']}" in told
        after = page["next"]
