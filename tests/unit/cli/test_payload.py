"""angzarr payload, on a folder and a register in memory."""

from __future__ import annotations

import json
import os
import sys
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner
from tests.apps import apps

from angzarr.adapters.files.payloads import FilePayloadStore
from angzarr.adapters.memory import payload_holders
from angzarr.adapters.memory.payload_holders import MemoryPayloadHolders
from angzarr.cli.main import main
from angzarr.errors import PayloadStoreUnavailable
from angzarr.facts.act_log import RunningAct
from angzarr.payloads.holders import PayloadHold, holding
from angzarr.testing import FakeClock
from apps import module_with

EVIL = "evil\x1b[2J[red]x[/red]"


class World:
    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self.holders = MemoryPayloadHolders(self.clock)
        self.store = FilePayloadStore(folder)

    def put(self, body: bytes, holder: str = "me") -> str:
        return self.store.put(body, holding(self.holders, holder)).uri

    def free(self, body: bytes) -> str:
        uri = self.put(body)
        self.holders.release([PayloadHold(uri, "me")])
        return uri

    def uris(self) -> set[str]:
        return {one.uri for one in self.store.find_all()}


@pytest.fixture
def world(tmp_path, monkeypatch):
    made = World(tmp_path / "bodies")
    monkeypatch.setattr(payload_holders, "SHARED", made.holders)
    return made


@pytest.fixture
def run(world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with apps(broker="memory://", store=f"memory://{tmp_path.name}") as make:

        def run(*arguments, code=0, payloads=None, **options):
            given = {"url": f"file://{tmp_path}/bodies", **(payloads or {})}
            app = make(payloads=given if payloads != {} else {})
            monkeypatch.setitem(sys.modules, "shop_for_payloads", module_with(app=app))
            asked = ["-A", "shop_for_payloads", "payload", *arguments]
            result = CliRunner().invoke(main, asked, **options)
            assert result.exit_code == code, result.output
            return result.output

        yield run


def test_stats_count_bodies_and_bytes_by_state(world, run):
    world.put(b"held")
    world.free(b"free!")
    world.clock.advance(timedelta(days=400))
    world.put(b"held too")
    assert json.loads(run("stats", "--json")) == {
        "held": {"bodies": 2, "bytes": 12, "longest_seconds": 400 * 86400},
        "free": {"bodies": 1, "bytes": 5, "longest_seconds": 400 * 86400},
        "condemned": {"bodies": 0, "bytes": 0, "longest_seconds": 0},
    }
    assert "a message, a letter or an entry needs it" in " ".join(run("stats").split())


def test_a_list_names_who_holds_a_body_and_hides_what_a_terminal_would_act_on(world, run):
    uri = world.put(b"held", EVIL)
    world.put(b"held", "you")
    [told] = json.loads(run("list", "--json"))
    assert (told["uri"], told["bytes"], told["holders"]) == (uri, 4, 2)
    assert told["holder"] in {EVIL, "you"}
    shown = run("list")
    assert "\x1b" not in shown
    assert "and 1 more" in " ".join(shown.split())
    assert run("list", "--state", "free").startswith("no bodies are free")


def test_all_who_hold_a_body_are_named(world, run):
    uri = world.put(b"held", EVIL)
    world.put(b"held", "you")
    assert json.loads(run("holders", uri, "--json")) == sorted([EVIL, "you"])
    shown = run("holders", uri).splitlines()
    assert (len(shown), "you" in shown, "\x1b" in "".join(shown)) == (2, True, False)
    assert run("holders", world.free(b"free")) == "nothing holds it\n"
    told = run("holders", f"{uri}0", code=1)
    assert "no body is registered at" in told
    assert "see `angzarr payload list`" in told


def test_a_person_lets_go_of_one_hold_or_of_all_and_the_grace_begins(world, run):
    uri = world.put(b"held", "a crash")
    world.put(b"held", "letter:1")
    run("release", uri, "--holder", "a crash", "--holder", "me", "--yes", code=1)
    run("release", uri, code=1, input="n\n")
    assert world.holders.holders_of(uri) == {"a crash", "letter:1"}
    assert run("release", uri, "--holder", "a crash", "--yes") == "ended 1 holds, 1 are left\n"
    world.clock.advance(timedelta(days=400))
    assert "deleted 0 bodies" in run("gc")
    assert json.loads(run("release", uri, "--yes", "--json")) == {
        "uri": uri, "released": ["letter:1"], "left": 0,
    }  # fmt: skip
    assert run("release", uri, "--yes") == "ended 0 holds, 0 are left\n"
    assert "deleted 0 bodies" in run("gc"), "who needs it after all may hold it again"
    world.clock.advance(timedelta(days=2))
    assert "deleted 1 bodies" in run("gc")
    assert "no body is registered at" in run("release", uri, code=1)


def test_gc_deletes_what_nothing_needs_and_says_how_much(world, run):
    world.free(b"free")
    held = world.put(b"held")
    assert run("gc") == "deleted 0 bodies, 0 bytes\n"
    world.clock.advance(timedelta(days=2))
    assert json.loads(run("gc", "--dry-run", "--json"))[0]["state"] == "free"
    assert len(world.uris()) == 2, "a dry run deletes nothing"
    assert run("gc") == "deleted 1 bodies, 4 bytes\n"
    assert world.uris() == {held}


def test_what_is_held_goes_after_the_time_that_was_chosen_and_is_told(world, run):
    world.put(b"held")
    world.clock.advance(timedelta(days=400))
    assert "deleted 0 bodies" in run("gc")
    told = run("gc", payloads={"keep": 400 * 86400})
    assert "1 of them were held for longer than payloads.keep" in told
    assert world.uris() == set()


def test_what_is_not_registered_goes_by_age_once_that_was_confirmed(world, run):
    uris = [world.store.put(body).uri for body in (b"old", b"young")]
    held = world.put(b"held")
    for uri in (uris[0], held):
        os.utime(urlsplit(uri).path, (0, 0))
    assert "1 unregistered bodies, 3 bytes" in run(
        "gc", "--dry-run", "--unregistered-older-than", "90d"
    )
    run("gc", "--unregistered-older-than", "90d", code=1, input="n\n")
    assert world.uris() == {*uris, held}
    told = run("gc", "--unregistered-older-than", "90d", "--yes", "--json")
    assert json.loads(told)["unregistered"] == 1
    assert world.uris() == {uris[1], held}


def test_what_was_deleted_before_it_failed_is_told_in_the_facts(world, run, monkeypatch):
    for body in (b"one", b"two"):
        os.utime(urlsplit(world.store.put(body).uri).path, (0, 0))
    delete, told = FilePayloadStore.delete, []

    def fail_at_the_second(store, uri, /):
        if len(world.uris()) == 1:
            raise PayloadStoreUnavailable("the folder is away")
        delete(store, uri)

    monkeypatch.setattr(FilePayloadStore, "delete", fail_at_the_second)
    monkeypatch.setattr(RunningAct, "done", lambda _act, data: told.append(dict(data)))
    run("gc", "--unregistered-older-than", "90d", "--yes", code=1)
    assert [one["unregistered"] for one in told] == [1]


def test_without_a_payload_store_the_cure_is_said(world, run):
    told = run("stats", code=1, payloads={})
    assert "no payload store is configured: set payloads.url" in told
