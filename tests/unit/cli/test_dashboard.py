from __future__ import annotations

import importlib
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from urllib.parse import urljoin

import pytest
import yaml
from click.testing import CliRunner

from angzarr import Angzarr
from angzarr.cli import dashboard as cli_dashboard
from angzarr.cli.main import main
from angzarr.clock import SystemClock
from angzarr.dashboard import server as serving
from angzarr.dashboard.access import hash_of
from angzarr.errors import ConfigurationError
from angzarr.resilience.clock_watch import ClockWatch
from angzarr.runtime.processes import PeriodicThread
from angzarr.settings.dashboard import DashboardSettings
from contracts.dead_letters import letters_of
from dashboard_caller import Client
from dashboard_world import World
from polling import wait_until


@pytest.fixture
def run():
    def call(*arguments):
        return CliRunner().invoke(main, ["dashboard", *arguments])

    return call


def test_a_token_is_printed_once_and_its_hash_for_the_settings(run):
    made = run("token", "ada", "--role", "operator")
    assert made.exit_code == 0
    (known,) = yaml.safe_load(made.stderr)
    assert known["sha256"] == hash_of(made.stdout.strip())
    assert DashboardSettings(tokens=[known]).tokens[0].name == "ada"


def test_a_name_that_the_audit_could_not_show_is_refused(run):
    made = run("token", "ada; rm", "--role", "operator")
    assert made.exit_code == 1
    assert "letters, digits" in made.stderr
    assert made.stdout == ""


def test_it_prints_where_to_log_in_where_the_settings_list_no_tokens(run, monkeypatch):
    served = []
    monkeypatch.setattr(cli_dashboard, "open_services", lambda _app, _doors: World().services())
    times = []

    def serve(site, _listener):
        served.append(site)
        times.append(SystemClock().now())

    monkeypatch.setattr(serving, "serve", serve)
    day = timedelta(days=1)
    fleet = ClockWatch(lambda: datetime.now(UTC) - day)
    app = SimpleNamespace(
        settings=SimpleNamespace(dashboard=DashboardSettings()),
        open_clock_thread=lambda: PeriodicThread("clock", lambda _stopping: fleet),
    )
    monkeypatch.setattr(cli_dashboard, "load_application", lambda _name: app)
    answer = run("serve", "--port", "0")
    assert answer.exit_code == 0, answer.output
    assert datetime.now(UTC) - times[0] >= day, "it judges by the fleet's clock"
    (site,) = served
    (line,) = [one for one in answer.stderr.splitlines() if one.startswith("serves ")]
    address = line.removeprefix("serves ")
    client = Client(site.app)
    assert client.get(address).headers["location"] == "/"
    assert client.get(urljoin(address, "/groups")).status_code == 200


def test_a_desk_hears_from_the_queues_what_nobody_has_read(tmp_path, unique_name):
    ledger = f"sqlite:///{tmp_path}/ledger.db"
    app = Angzarr(unique_name, broker=f"memory://{unique_name}", store="memory://", ledger=ledger)
    domain = app.ops.dead_letter_domains()[0]
    with ExitStack() as doors:
        queue = doors.enter_context(closing(app.ops.open_dead_letter_queue()))
        queue.put(letters_of(domain, 2))
        services = cli_dashboard.open_services(app.ops, doors)
        wait_until(lambda: domain in services.unread(), "the queue to tell")
        assert services.unread()[domain].waiting == 2


def test_a_desk_of_an_app_whose_letters_have_no_place_opens_all_the_same(app):
    def nowhere():
        raise ConfigurationError("letters have no place")

    app.open_depth_watch = nowhere
    with ExitStack() as doors:
        assert cli_dashboard._open_unread(app, doors)() == {}


@pytest.mark.parametrize("package", ["fastapi", "jinja2", "uvicorn", "python_multipart"])
def test_without_its_extra_it_says_what_to_install(run, monkeypatch, package):
    real = importlib.import_module

    def missing(name, *arguments):
        if name == package:
            raise ModuleNotFoundError(name=package)
        return real(name, *arguments)

    monkeypatch.setattr(importlib, "import_module", missing)
    answer = run("serve")
    assert answer.exit_code == 1
    assert "pip install 'angzarr-workers[dashboard]'" in answer.stderr
