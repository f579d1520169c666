from __future__ import annotations

import io
import json
import sys
from datetime import timedelta

import pytest
from click.testing import CliRunner
from rich.console import Console

from angzarr.adapters.memory.breaker import InProcessBreakers
from angzarr.adapters.memory.facts import MemoryFactLog
from angzarr.cli import breaker as command
from angzarr.cli.main import main
from angzarr.errors import StoreUnavailable
from angzarr.facts.act_log import ActLog
from angzarr.resilience.breaker import BreakerSettings, Permit, Phase
from apps import apps, module_with
from hand_clock import HandClock

#: What a terminal, rich or a reader of lines would act on.
EVIL = "evil\x1b[2J[red]x[/red]\u202e\n\x07"


class FakeApp:
    """What the commands need of an app, with breakers in memory."""

    ops = context = property(lambda self: self)

    open_ledger = None

    def __init__(self) -> None:
        self.clock = HandClock()
        self.acts = ActLog(facts=MemoryFactLog, clock=self.clock)
        touchy = BreakerSettings(min_calls=2, failures_in_a_row=2)
        self.breakers = InProcessBreakers({"crm": touchy}, default=touchy, clock=self.clock)

    def breaker_controls(self):
        return self.breakers

    def fail(self, name, times=2):
        for number in range(times):
            permit = self.breakers.admit(name, f"{number}")
            self.breakers.record(permit, ok=False, took=timedelta(0))


def serve(monkeypatch, app):
    monkeypatch.setitem(sys.modules, "shop_for_test", module_with(app=app))
    return app


@pytest.fixture
def app(monkeypatch):
    return serve(monkeypatch, FakeApp())


@pytest.fixture
def run():
    def call(*arguments):
        return CliRunner().invoke(main, ["-A", "shop_for_test", "breaker", *arguments])

    return call


def row(output, name):
    """The cells of a breaker's row."""
    (found,) = [line for line in output.splitlines() if f" {name} " in line]
    return [cell.strip() for cell in found.split("│")[1:-1]]


# -- list, show ------------------------------------------------------------------------------------


def test_list_shows_every_breaker_with_its_counts(app, run):
    app.fail("crm", times=1)
    app.fail("mail")
    app.breakers.isolate("erp", by="ann")
    result = run("list")
    assert result.exit_code == 0
    assert row(result.output, "crm") == ["crm", "closed", "", "", "1", "1", "0", ""]
    name, state, since, why, *_, probe = row(result.output, "mail")
    assert (name, state, why) == ("mail", "open", "threshold_exceeded")
    assert since.endswith(" ago")
    assert probe
    assert row(result.output, "erp")[1] == "isolated"
    assert row(result.output, "erp")[-1] == "not before a reset"


def test_list_as_json_is_for_programs(app, run):
    app.fail("crm")
    app.breakers.isolate(EVIL, by="ann")
    found = {one["name"]: one for one in json.loads(run("list", "--json").output)}
    assert set(found) == {"crm", EVIL}
    assert found["crm"] == {
        "name": "crm",
        "state": "open",
        "changed_at": "2026-01-01T12:00:00+00:00",
        "reason": "threshold_exceeded",
        "calls": 0,
        "failures": 0,
        "slow": 0,
        "failures_in_a_row": 0,
        "retry_at": "2026-01-01T12:01:00+00:00",
        "probes": 0,
        "probe_successes": 0,
        "ramp_from": None,
    }


def test_show_tells_what_became_of_a_breaker(app, run):
    app.fail("crm")
    app.fail("mail")
    app.breakers.isolate("crm", by="ann@desk")
    output = run("show", "crm").output
    assert "crm: closed to open, threshold_exceeded, 2 of 2 calls failed" in output
    assert "crm: open to isolated, operator, by ann@desk" in output
    assert "mail" not in output


def test_show_as_json_tells_the_transitions(app, run):
    app.fail("crm")
    app.fail("mail")
    found = json.loads(run("show", "crm", "--json").output)
    assert found["state"] == "open"
    assert found["transitions"] == [
        {
            "at": "2026-01-01T12:00:00+00:00",
            "previous_state": "closed",
            "new_state": "open",
            "reason": "threshold_exceeded",
            "request_count": 2,
            "failure_count": 2,
            "success_count": 0,
            "by": None,
        }
    ]


# -- isolate, reset --------------------------------------------------------------------------------


def test_isolate_and_reset_say_who_did_it(app, run, monkeypatch):
    monkeypatch.setattr(command, "person", lambda: "ann@desk")
    assert "`angzarr breaker reset crm`" in run("isolate", "crm").output
    assert app.breakers.states()["crm"].phase is Phase.ISOLATED
    assert run("reset", "crm").output == "crm is closed\n"
    assert app.breakers.states()["crm"].phase is Phase.CLOSED
    assert [change.by for change in app.breakers.history(9)] == ["ann@desk"] * 2


@pytest.mark.parametrize("verb", ["show", "isolate", "reset"])
def test_unknown_breaker_is_one_clear_sentence_that_names_the_known(app, run, verb):
    app.breakers.admit(EVIL, "t")
    result = run(verb, "cmr")
    assert result.exit_code == 1
    assert result.output.startswith("Error: there is no breaker 'cmr'; known are: crm, evil")
    assert set(app.breakers.states()) == {"crm", EVIL}
    assert_harmless(result.output)


def test_without_any_breaker_none_is_known(app, run):
    app.breakers = InProcessBreakers()
    assert "known are: none" in run("show", "crm").output


def test_a_breaker_nobody_has_used_is_isolated_only_if_asked_for(app, run):
    assert run("isolate", "new").exit_code == 1
    assert run("isolate", "new", "--create").exit_code == 0
    assert run("isolate", "crm:acme%20corp", "--create").exit_code == 0
    for name in ("new", "crm:acme%20corp"):
        assert app.breakers.states()[name].phase is Phase.ISOLATED


@pytest.mark.parametrize("name", ["", "two words", ":b", "x" * 201])
def test_what_is_no_name_is_not_created(app, fails, name):
    assert "is not a name of a breaker" in fails("isolate", name, "--create")
    assert set(app.breakers.states()) == {"crm"}


# -- watch -----------------------------------------------------------------------------------------


def at_each_look(monkeypatch, *steps):
    """Do one of *steps* while `watch` waits, then press Ctrl-C."""
    todo = iter(steps)

    def sleep(_):
        try:
            next(todo)()
        except StopIteration:
            raise KeyboardInterrupt from None

    monkeypatch.setattr(command.time, "sleep", sleep)


def test_watch_in_a_pipe_prints_each_change_once(app, run, monkeypatch):
    app.fail("before")
    at_each_look(
        monkeypatch,
        lambda: app.fail("crm"),
        lambda: None,
        lambda: app.breakers.isolate("crm", by="ann"),
        lambda: None,
    )
    result = run("watch")
    assert result.exit_code == 0
    assert [line.split("  ", 1)[1] for line in result.output.splitlines()] == [
        "crm: closed to open, threshold_exceeded, 2 of 2 calls failed",
        "crm: open to isolated, operator, by ann",
    ]


def test_watch_on_a_terminal_shows_the_table_as_it_changes(app, run, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    shown = Console(file=io.StringIO(), force_terminal=True, width=120)
    monkeypatch.setattr(command, "console", lambda: shown)
    at_each_look(monkeypatch, lambda: app.fail("crm"), lambda: None)
    assert run("watch").exit_code == 0
    before, _, after = shown.file.getvalue().partition("threshold_exceeded")
    assert "closed" in before
    assert after


def test_watch_on_a_terminal_that_cannot_draw_prints_each_change(app, run, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    shown = Console(file=io.StringIO(), force_terminal=True, width=120)
    monkeypatch.setattr(command, "console", lambda: shown)
    at_each_look(monkeypatch, lambda: app.fail("crm"), lambda: None)
    assert "crm: closed to open" in run("watch").output
    assert shown.file.getvalue() == ""


# -- what came from outside ------------------------------------------------------------------------


def assert_harmless(output):
    for sign in ("\x1b", "\x07", "\u202e"):
        assert sign not in output


@pytest.mark.parametrize("arguments", [("list",), ("show", EVIL), ("watch",), ("reset", EVIL)])
def test_a_name_is_shown_and_not_obeyed(app, run, monkeypatch, arguments):
    at_each_look(monkeypatch, lambda: app.breakers.isolate(EVIL, by=EVIL))
    if arguments != ("watch",):
        app.breakers.isolate(EVIL, by=EVIL)
    output = run(*arguments).output
    assert "[2J[red]x[/red]" in output
    assert_harmless(output)


def test_a_name_cannot_forge_a_line_of_watch(app, run, monkeypatch):
    at_each_look(monkeypatch, lambda: app.breakers.isolate("a\n2026-01-01  crm: closed", by="ann"))
    assert len(run("watch").output.splitlines()) == 1


# -- apps and stores -------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["list", "watch"])
def test_breakers_of_one_process_are_refused_with_the_cure(run, monkeypatch, verb):
    with apps(broker="memory://") as make:
        serve(monkeypatch, make())
        result = run(verb)
    assert result.exit_code == 1
    assert result.output.startswith("Error: the breakers of this app live in each worker process")
    assert "flow.store" in result.output


def test_a_store_that_is_away_is_one_clear_sentence(app, run, monkeypatch):
    def away():
        raise StoreUnavailable("Redis at 127.0.0.1:1/0 did not serve a command")

    monkeypatch.setattr(app.breakers, "states", away)
    result = run("list")
    assert result.exit_code == 1
    assert result.output == "Error: Redis at 127.0.0.1:1/0 did not serve a command\n"


def test_a_closed_breaker_is_not_changed_by_looking(app, run):
    for verb in (("list",), ("show", "crm")):
        run(*verb)
    assert isinstance(app.breakers.known("crm"), Permit)
    assert list(app.breakers.history(9)) == []
