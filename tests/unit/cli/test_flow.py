from __future__ import annotations

import json
import sys
import types
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner

from angzarr import Angzarr
from angzarr.adapters.memory.facts import MemoryFactLog
from angzarr.adapters.memory.switches import InProcessSwitches
from angzarr.cli.main import main
from angzarr.clock import SystemClock
from angzarr.errors import StoreUnavailable
from angzarr.facts.act_log import ActLog
from angzarr.resilience.switches import Selector, Switch, SwitchAction, SwitchChange, SwitchSet
from apps import module_with


class FakeApp:
    """What the commands need of an app."""

    ops = context = property(lambda self: self)

    def __init__(self):
        names = ("celery.ping", "shop.sync", "shop.bill", "mail.send")
        self.handlers = [types.SimpleNamespace(name=name) for name in names]
        self.switches = InProcessSwitches()
        self.acts = ActLog(facts=MemoryFactLog, clock=SystemClock())

    def switch_controls(self):
        return self.switches

    def open_ledger(self):
        raise NotImplementedError


@pytest.fixture
def app(monkeypatch):
    app = FakeApp()
    monkeypatch.setitem(sys.modules, "flow_for_test", module_with(app=app))
    return app


@pytest.fixture
def run(app):
    def call(*arguments, **options):
        return CliRunner().invoke(main, ["-A", "flow_for_test", "flow", *arguments], **options)

    return call


def told(result):
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_pause_is_put_told_and_listed(run, app):
    result = run("pause", "--handler", "shop.sync", "--tenant", "acme", "--reason", "CRM moves")
    assert result.exit_code == 0
    (switch,) = app.switches.switches()
    assert switch.selector == Selector("shop.sync", tenant="acme")
    assert (switch.action, switch.reason) == (SwitchAction.PAUSE, "CRM moves")
    assert switch.by
    assert "CRM moves" in result.output
    assert f"angzarr flow resume {switch.id}" in result.output
    listed = run("list").output
    assert all(part in listed for part in (switch.id, "pause", "shop.sync", "acme", switch.by))


def test_nothing_listed_is_said(run):
    assert "nothing is paused or dropped" in run("list").output
    assert told(run("list", "--json")) == []


def test_what_is_told_to_programs(run):
    put = told(run("pause", "--domain", "order", "--for", "1h30m", "--json"))
    assert (put["action"], put["domain"], put["handler"]) == ("pause", "order", None)
    ends, began = datetime.fromisoformat(put["until"]), datetime.fromisoformat(put["at"])
    assert ends - began == timedelta(hours=1, minutes=30)
    assert told(run("list", "--json")) == [put]
    assert told(run("resume", put["id"], "--json")) == [put]
    first, second = told(run("history", "--json"))
    assert (first["action"], first["before"], first["after"]) == ("pause", None, put)
    assert (second["action"], second["before"], second["after"]) == ("resume", put, None)


@pytest.mark.parametrize("command", ["pause", "resume"])
@pytest.mark.parametrize("options", [[], ["--all", "--tenant", "acme"]], ids=["none", "too many"])
def test_what_is_meant_must_be_said(fails, app, command, options):
    app.switches.put(Selector(), SwitchAction.PAUSE, by="ada")
    assert "say which" in fails(command, *options, code=2)
    assert len(app.switches.history(10)) == 1


def test_all_can_be_paused_by_saying_so(run, app):
    assert run("pause", "--all").exit_code == 0
    assert app.switches.of(Selector("any", "any", "any", "any"))


@pytest.mark.parametrize("name", ["shop.snyc", "shop.bil?x", "SHOP.*"])
def test_a_handler_that_is_not_there_is_refused_with_those_that_are(fails, app, name):
    assert "known are: mail.send, shop.bill, shop.sync\n" in fails("pause", "--handler", name)
    assert list(app.switches.switches()) == []


def test_handlers_can_be_named_by_a_pattern(run, app):
    assert run("pause", "--handler", "shop.*").exit_code == 0
    assert app.switches.of(Selector("shop.bill"))


# -- drop ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("answer", "dropped"), [("y\n", 1), ("n\n", 0), ("", 0)])
def test_a_drop_is_asked_for(run, app, answer, dropped):
    result = run("drop", "--tenant", "acme", "--reason", "left us", input=answer)
    assert "Drop for good what fits: tenant acme?" in result.output
    assert result.exit_code == 1 - dropped
    assert len(app.switches.switches()) == dropped


def test_a_drop_is_not_asked_for_where_it_was_said(run, app):
    assert run("drop", "--tenant", "acme", "--reason", "left us", "--yes").exit_code == 0
    assert app.switches.of(Selector("h", tenant="acme")).action is SwitchAction.DROP


@pytest.mark.parametrize("reason", [[], ["--reason", ""]], ids=["none", "empty"])
def test_a_drop_needs_a_reason(run, app, reason):
    result = run("drop", "--tenant", "acme", "--yes", *reason)
    assert result.exit_code != 0
    assert "reason" in result.output
    assert list(app.switches.switches()) == []


def test_an_unknown_handler_is_refused_before_anybody_is_asked(run):
    result = run("drop", "--handler", "shop.snyc", "--reason", "why", input="y\n")
    assert "Drop for good" not in result.output
    assert result.exit_code == 1


# -- until -----------------------------------------------------------------------------------


def test_a_time_is_a_local_one(run, app):
    assert run("pause", "--all", "--until", "2099-01-02 03:04:05").exit_code == 0
    (switch,) = app.switches.switches()
    assert switch.until == datetime(2099, 1, 2, 3, 4, 5).astimezone()
    assert "until 2099-01-02 03:04:05" in run("history").output


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--for", "soon"], "write 90s, 15m, 2h, 1d12h or 1w"),
        (["--for", "2"], "write 90s, 15m, 2h, 1d12h or 1w"),
        (["--for", "0s"], "more than 0 s"),
        (["--for", "367d"], "at most 366 d"),
        (["--for", "999999999d"], "at most 366 d"),
        (["--until", "2020-01-01"], "is over already"),
        (["--until", "2099-01-01", "--for", "1h"], "not both"),
    ],
)
def test_an_end_that_makes_no_sense_is_refused(fails, app, options, said):
    assert said in fails("pause", "--all", *options, code=2)
    assert list(app.switches.switches()) == []


# -- resume ----------------------------------------------------------------------------------


@pytest.fixture
def three(app):
    put = app.switches.put
    return [
        put(Selector(handler="shop.*"), SwitchAction.PAUSE, by="ada"),
        put(Selector("shop.sync", tenant="acme"), SwitchAction.DROP, by="ada", reason="left us"),
        put(Selector(), SwitchAction.PAUSE, by="ada"),
    ]


def left(app):
    return {switch.id for switch in app.switches.switches()}


def test_switches_are_ended_by_id(run, app, three):
    result = run("resume", three[0].id, three[1].id, "--reason", "over")
    assert result.exit_code == 0
    assert result.output.count("resumed what was") == 2
    assert left(app) == {three[2].id}
    assert app.switches.history(1)[0].reason == "over"


def test_a_switch_is_ended_by_just_its_selector(run, app, three):
    assert run("resume", "--tenant", "acme", "--handler", "shop.sync").exit_code == 0
    assert left(app) == {three[0].id, three[2].id}


def test_a_switch_of_another_selector_is_not_ended_but_shown(fails, app, three):
    assert f"{three[0].id} (handler shop.*)" in fails("resume", "--handler", "shop.sync")
    assert len(left(app)) == 3


def test_all_are_ended_by_all(run, app, three):
    assert run("resume", "--all").exit_code == 0
    assert left(app) == set()
    assert "nothing was paused or dropped" in run("resume", "--all").output


def test_one_id_that_is_not_there_ends_none(run, app, three):
    result = run("resume", three[0].id, "0123456789ab")
    assert result.exit_code == 1
    assert len(left(app)) == 3


def test_ids_and_options_together_are_refused(run, app, three):
    assert run("resume", three[0].id, "--all").exit_code == 2
    assert len(left(app)) == 3


def unreadable(app, monkeypatch, *ids):
    """Let there be what only a shared store may hold."""
    there = list(ids)
    monkeypatch.setattr(app.switches, "unreadable", lambda: list(there))
    resume = app.switches.resume

    def removing(wanted, **said):
        there[:] = [id_ for id_ in there if id_ not in wanted]
        return resume(wanted, **said)

    monkeypatch.setattr(app.switches, "resume", removing)
    return there


@pytest.mark.parametrize("how", [["garbage-1", "garbage-2"], ["--all"]], ids=["ids", "all"])
def test_what_cannot_be_read_is_listed_and_removed(run, app, three, monkeypatch, how):
    there = unreadable(app, monkeypatch, "garbage-1", "garbage-2")
    lines = run("list").output.splitlines()
    assert sum("unreadable" in line and "garbage-" in line for line in lines) == 2
    result = run("resume", *how)
    assert result.exit_code == 0
    assert result.output.count("removed garbage-") == 2
    assert there == []
    assert len(left(app)) == (0 if how == ["--all"] else 3)


def test_what_cannot_be_read_is_told_to_programs(run, app, monkeypatch):
    unreadable(app, monkeypatch, "garbage")
    put = told(run("pause", "--all", "--json"))
    first, second = told(run("list", "--json"))
    assert (first, put["understood"]) == (put, True)
    assert second.keys() == put.keys()
    assert (second["id"], second["action"], second["understood"]) == ("garbage", None, False)
    assert told(run("resume", "garbage", "--json")) == [second]


def test_a_pause_of_what_a_newer_release_wrote_is_told_as_such(run, app):
    app.switches._all = SwitchSet([replace(ODD, action=SwitchAction.PAUSE, understood=False)])
    assert "pause (to be safe)" in run("list").output
    assert "a newer release wrote it" in run("resume", "--all").output


def test_the_history_tells_what_was_removed(run, app, monkeypatch):
    change = SwitchChange(
        id="1", switch_id="garbage", selector=None, before=None, after=None,
        by="ada", reason="", at=datetime.now(UTC),
    )  # fmt: skip
    monkeypatch.setattr(app.switches, "history", lambda _limit: [change])
    assert "resume what was unreadable (switch garbage), by ada" in run("history").output
    (line,) = told(run("history", "--json"))
    assert (line["switch_id"], line["handler"]) == ("garbage", None)


# -- what is shown ---------------------------------------------------------------------------


def test_the_history_tells_who_what_and_why(run, app, three):
    app.switches.put(three[0].selector, SwitchAction.DROP, by="bob", reason="no use")
    run("resume", "--handler", "shop.*")
    lines = run("history", "--limit", "2").output.splitlines()
    assert len(lines) == 2
    assert "drop handler shop.*, by bob: no use, in place of what is paused by ada" in lines[0]
    assert "resume handler shop.*, by " in lines[1]


ODD = Switch(
    selector=Selector(tenant="\x1b[31mred\nname"), action=SwitchAction.DROP,
    by="a\x07b", reason="\x1b]0;x", at=datetime.now(UTC),
)  # fmt: skip


@pytest.mark.parametrize(
    "command", [["list"], ["resume", "0123\x1b"], ["resume", "--all"], ["history"]]
)
def test_what_a_terminal_would_act_on_is_not_printed(run, app, command):
    """Who wrote it there did not use `put`, which refuses it."""
    app.switches._all = SwitchSet([ODD])
    if command == ["history"]:
        app.switches.resume([ODD.id], by="ada")
    output = run(*command).output
    assert "red" in output
    assert "\nname" not in output
    assert not set(output) & {"\x1b", "\x07"}


def test_a_line_break_in_a_reason_is_refused(run, app):
    result = run("pause", "--all", "--reason", "a\nb")
    assert (result.exit_code, list(app.switches.switches())) == (1, [])
    assert "must be one line" in result.output


def test_a_store_that_is_away_is_one_sentence(run, app, monkeypatch):
    def away():
        raise StoreUnavailable("Redis did not answer")

    monkeypatch.setattr(app.switches, "switches", away)
    result = run("list")
    assert result.exit_code == 1
    assert result.output == "Error: Redis did not answer\n"


def test_an_app_whose_fleet_shares_no_store_is_refused(monkeypatch, tmp_path):
    app = Angzarr("lone", broker="memory://", store="memory://", ledger=f"sqlite:///{tmp_path}/l")
    monkeypatch.setitem(sys.modules, "lone_for_test", module_with(app=app))
    result = CliRunner().invoke(main, ["-A", "lone_for_test", "flow", "list"])
    assert result.exit_code == 1
    assert "set flow.store to a Redis" in result.output
