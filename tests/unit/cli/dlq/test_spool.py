"""What a person sees of a spool, and can do with it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from angzarr.adapters.files.spool import FolderOfLetters, Spool
from angzarr.adapters.memory.facts import MemoryFactLog
from angzarr.cli.main import main
from angzarr.clock import SystemClock
from angzarr.dead_letters.queue import RawLetter, TooLarge
from angzarr.dead_letters.spool_forwarder import Aside, Forwarder
from angzarr.facts.act_log import ActLog
from angzarr.settings.settings import load
from apps import module_with
from contracts.dead_letters import a_letter, letters_of
from unit.dead_letters.letterboxes import Target

#: What a terminal, rich or a reader of lines would act on.
EVIL = "evil\x1b[2J[red]x[/red]\u202e\x07"


class FakeApp:
    """An app with a spool, and a queue that does what a test says."""

    ops = context = property(lambda self: self)

    open_ledger = None

    def __init__(self, path: Path) -> None:
        self.acts = ActLog(facts=MemoryFactLog, clock=SystemClock())
        self.path = path
        spool = {"path": str(path), "durable": True}
        self.settings = load({"dlq": {"targets": ["amqp", "spool"], "spool": spool}})
        self.queue = Target("amqp")

    def check_analysis(self):
        pass

    def open_forwarder(self, path=None):
        folder = FolderOfLetters(path or self.path)
        return Forwarder(spool=folder, queue=self.queue, chance=lambda: 0.5)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "spool"


@pytest.fixture
def spool(path):
    spool = Spool(path, max_bytes=2**30)
    spool.prepare()
    return spool


@pytest.fixture
def folder(path):
    return FolderOfLetters(path)


@pytest.fixture
def app(path, monkeypatch):
    app = FakeApp(path)
    monkeypatch.setitem(sys.modules, "shop_for_test", module_with(app=app))
    return app


@pytest.fixture
def run(app):
    def call(*arguments):
        return CliRunner().invoke(main, ["-A", "shop_for_test", "dlq", "spool", *arguments])

    return call


@pytest.fixture
def look(path):
    """Run a command on the folder, without an app."""

    def call(*arguments):
        return CliRunner().invoke(main, ["dlq", "spool", *arguments, "--path", str(path)])

    return call


def test_letters_are_listed_oldest_first_without_an_app(spool, look):
    spool.put(letters_of("order", 3))
    said = look("list", "--limit", "2")
    assert said.exit_code == 0
    assert said.output.index("order-0") < said.output.index("order-1")
    assert "shop.sync" in said.output
    assert "1 more: --limit 3" in said.output


def test_bytes_that_are_no_letter_are_told_as_such(spool, look):
    spool.put_raw([RawLetter(domain="order", raw=b"{damaged", content_type="application/json")])
    [row] = json.loads(look("list", "--json").stdout)["letters"]
    assert row["problem"] == "8 bytes of order that are not a letter: the letter is not JSON"


def test_an_empty_spool_says_so(spool, run):
    assert run("list").output == "no letters\n"
    assert "0 letters wait" in run("stats").output
    assert run("forward").exit_code == 0


def test_the_apps_own_spool_is_the_default(spool, run):
    spool.put([a_letter("order")])
    said = json.loads(run("list", "--json").output)
    assert said["all"] == 1
    (row,) = said["letters"]
    assert (row["letter_id"], row["handler"], row["problem"]) == ("order-0", "shop.sync", None)


def test_a_letter_is_shown_whole(spool, look):
    spool.put(letters_of("order", 2))
    assert '"handler": "shop.sync"' in look("show", "order-1").output
    said = json.loads(look("show", "order-1", "--json").output)
    assert said["letter"]["metadata"]["letter_id"] == "order-1"


def test_a_letter_that_is_not_there_or_not_the_only_one_is_told(spool, look):
    spool.put(letters_of("order", 2))
    assert "there is no letter 'nothing'" in look("show", "nothing").output
    assert "several letters begin with 'order-'" in look("show", "order-").output


def test_what_was_set_aside_is_counted_listed_and_an_exit_code(spool, folder, path, look):
    spool.put(letters_of("order", 3))
    first, second, _ = folder.waiting()
    (path / second.name).write_bytes(b"cut")
    folder.set_aside(first, Aside.REFUSED)
    folder.set_aside(second, Aside.DAMAGED)
    said = look("stats")
    assert said.exit_code == 1
    assert "1 letters wait" in said.output
    assert "1 refused, 1 damaged" in said.output
    assert json.loads(look("stats", "--json").output)["refused"] == 1
    assert "order-0" in look("list", "--aside", "refused").output
    assert "does not begin with" in look("list", "--aside", "damaged").output
    assert "does not begin with" in look("show", "order-1", "--aside", "damaged").output


def test_letters_are_forwarded_at_once_on_demand(spool, run, app, folder):
    spool.put(letters_of("order", 120))
    said = run("forward")
    assert (said.exit_code, said.output) == (0, "120 forwarded, 0 kept, 0 refused, 0 damaged\n")
    assert len(app.queue.taken) == 120
    assert folder.waiting() == []
    assert app.queue.closed == 1


def test_what_could_not_be_forwarded_is_said_and_an_exit_code(spool, run, app):
    spool.put(letters_of("order", 3))
    app.queue.against = {"order-0": "not authorised", "order-1": TooLarge("too large")}
    said = run("forward", "--json")
    assert said.exit_code == 1
    assert json.loads(said.output) == {
        "forwarded": 1, "kept": 1, "refused": 1, "damaged": 0, "problem": "not authorised"
    }  # fmt: skip


def test_a_queue_that_is_away_is_one_sentence_and_nothing_is_lost(spool, run, app, folder):
    spool.put([a_letter("order")])
    app.queue.leave()
    said = run("forward")
    assert (said.exit_code, said.output) == (1, "Error: amqp gave no answer\n")
    assert len(folder.waiting()) == 1


def test_while_a_worker_forwards_nobody_else_does(spool, run, folder):
    spool.put([a_letter("order")])
    with folder.alone():
        said = run("forward")
    assert said.exit_code == 1
    assert "another process is forwarding from this spool" in said.output


def test_what_was_refused_is_tried_again_on_demand(spool, run, app, folder):
    spool.put([a_letter("order")])
    folder.set_aside(folder.waiting()[0], Aside.REFUSED)
    assert run("forward").output.startswith("0 forwarded")
    assert run("forward", "--refused").output.startswith("1 forwarded")
    assert app.queue.taken == ["order-0"]


def test_an_app_without_a_spool_is_told_how_to_have_one(app, fails):
    app.settings = load({"dlq": {"backend": "amqp"}})
    assert "this app has no spool" in fails("list")


def test_a_path_that_is_none_is_refused(look):
    assert "does not exist" in look("list").output


def test_what_a_letter_says_is_shown_and_not_obeyed(spool, look):
    evil = a_letter(EVIL, id="evil-1", handler=EVIL, error_type=EVIL, error_message=EVIL)
    spool.put([evil])
    for said in (look("list").output, look("show", "evil-1").output):
        assert "\x1b" not in said
        assert "\x07" not in said
        assert "\u202e" not in said
    assert "[red]x[/red]" in look("list").output
