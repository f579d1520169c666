from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner

from angzarr.adapters.memory.idempotency import MemoryFleet, MemoryOwnerLeases
from angzarr.cli.main import main
from angzarr.errors import ConfigurationError, StoreUnavailable
from angzarr.fleet import Member
from apps import module_with
from hand_clock import HandClock

LEASE = timedelta(seconds=8)
#: What a terminal, rich or a reader of lines would act on.
EVIL = "evil\x1b[2J[red]x[/red]\u202e\n\x07"


class FakeApp:
    """What the commands need of an app, with a fleet in memory."""

    ops = context = property(lambda self: self)

    open_ledger = None

    def __init__(self) -> None:
        self.clock = HandClock()
        self.leases = MemoryOwnerLeases(self.clock)
        self.store = MemoryFleet(self.leases, clock=self.clock)

    def fleet(self):
        return self.store

    def enter(self, owner, release="v1", **said):
        began = datetime.now(UTC) - timedelta(minutes=5)
        given = {"host": "web-1", "pid": 7, "started_at": began, "pool": "prefork", **said}
        self.leases.renew(owner, LEASE)
        self.store.register(Member(owner=owner, release=release, **given))
        self.clock.sleep(timedelta(seconds=1))


@pytest.fixture
def app(monkeypatch):
    app = FakeApp()
    monkeypatch.setitem(sys.modules, "shop_for_test", module_with(app=app))
    return app


@pytest.fixture
def run():
    def call(*arguments):
        return CliRunner().invoke(main, ["-A", "shop_for_test", "fleet", *arguments])

    return call


def rows(output):
    """The cells of a table, without its head."""
    lines = [line for line in output.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines]


def test_list_shows_each_worker_in_a_row(app, run):
    app.enter("b", handlers=("shop.mail", "shop.sync"), queues=("bulk", "shop"))
    app.enter("a", release="", pid=8)
    assert rows(run("list").output) == [
        ["web-1:8", "-", "prefork", "", "0", "5 min 0 s ago"],
        ["web-1:7", "v1", "prefork", "bulk, shop", "2", "5 min 0 s ago"],
    ]


def test_list_as_json_has_all_that_a_worker_says(app, run):
    app.enter("a", release=EVIL, handlers=("shop.sync",), queues=("shop",))
    result = run("list", "--json")
    (found,) = json.loads(result.output)
    assert result.output.isascii()
    assert datetime.fromisoformat(found.pop("started_at")).tzinfo is not None
    assert found == {
        "owner": "a", "host": "web-1", "pid": 7, "release": EVIL, "pool": "prefork",
        "handlers": ["shop.sync"], "queues": ["shop"],
    }  # fmt: skip


def test_releases_come_newest_first_with_their_workers(app, run):
    app.enter("a", release="v10")
    app.clock.sleep(LEASE)
    app.enter("b", release="v9")
    app.enter("c", release="v9")
    found = json.loads(run("releases", "--json").output)
    assert [(one["name"], one["workers"]) for one in found] == [("v9", 2), ("v10", 0)]
    assert all(one["first_seen_at"] <= one["last_seen_at"] for one in found)
    (v9, _, last, workers), (v10, _, gone, none) = rows(run("releases").output)
    assert (v9, last, workers) == ("v9", "now", "2")
    assert (v10, none) == ("v10", "0")
    assert gone.endswith(" ago")


def test_nobody_is_said_in_words_and_as_an_empty_list(app, run):
    assert run("list").output == "no worker runs\n"
    assert "ANGZARR_RELEASE" in run("releases").output
    assert [json.loads(run(what, "--json").output) for what in ("list", "releases")] == [[], []]


@pytest.mark.parametrize("command", ["list", "releases"])
def test_names_are_shown_and_never_obeyed(app, run, command):
    app.enter(EVIL, release=EVIL, host=EVIL, queues=(EVIL,), pool=EVIL)
    output = run(command).output
    assert "[red]x[/red]" in output
    assert not {"\x1b", "\u202e", "\x07"} & set(output)


@pytest.mark.parametrize("error", [StoreUnavailable, ConfigurationError])
def test_a_store_that_is_away_is_one_sentence(app, run, monkeypatch, error):
    def away():
        msg = "Redis is away"
        raise error(msg)

    monkeypatch.setattr(app, "fleet", away)
    result = run("list")
    assert (result.exit_code, result.output) == (1, "Error: Redis is away\n")
