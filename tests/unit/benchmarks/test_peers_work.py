"""What runs in the peers' own environments, and how a run is watched from outside."""

from __future__ import annotations

import importlib
import sys
from contextlib import contextmanager
from dataclasses import replace

import pytest
from harness.figure import NotMeasured
from peers import runs
from peers.catalogue import OURS
from workers.stamps import Stamps

APP = """
from peers.apps import work

def send(number):
    (work.FOLDER / f"sent-{number}").touch()
"""
ASYNC_APP = """
from peers.apps import work

async def begin(): (work.FOLDER / "begun").touch()
async def end(): (work.FOLDER / "ended").touch()
async def send(number): (work.FOLDER / f"sent-{number}").touch()
"""
#: Runs what was sent, each event until it does not fail; then waits to be stopped.
WORKER = """
import signal
from peers.apps import work

for sent in sorted(work.FOLDER.glob("sent-*")):
    event = work.body(int(sent.name.removeprefix("sent-")))
    try:
        work.run(event)
    except work.Unlucky:
        work.run(event)
print("all ran", flush=True)
signal.pause()
"""


@pytest.fixture
def work(tmp_path, monkeypatch):
    """The module, as a peer's process has it."""
    for file in ("stamps", "done", "failed", "published"):
        Stamps.create(tmp_path / file, 10)
    told = {"BROKER": "redis://", "FOLDER": str(tmp_path), "WAIT": "0", "SPIN": "0.001",
            "FAILS_EVERY": "5"}  # fmt: skip
    for name, value in told.items():
        monkeypatch.setenv(f"BENCH_{name}", value)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("peers.apps.work")
    for name in ("peers.apps.work", "peers.apps.publish", "an_app"):
        sys.modules.pop(name, None)


def test_every_fifth_event_fails_once_and_then_is_stamped(work):
    work.run(work.body(4))
    with pytest.raises(work.Unlucky):
        work.run(work.body(5))
    assert not work.STAMPS.has(5)
    work.run(work.body(5))
    assert work.STAMPS.has(5)
    assert work.STAMPS.count() == work.DONE.count() == 2


@pytest.mark.parametrize("source", [APP, ASYNC_APP], ids=["sync", "async"])
@pytest.mark.parametrize("rate", [0.0, 1e6], ids=["ahead", "steadily"])
def test_each_event_is_published_once_and_its_moment_kept(work, tmp_path, source, rate):
    (tmp_path / "an_app.py").write_text(source)
    publish = importlib.import_module("peers.apps.publish")
    publish.main("an_app", 2, 7, rate)
    assert len(list(tmp_path.glob("sent-*"))) == 7
    published = Stamps(tmp_path / "published")
    assert [number for number in range(10) if published.has(number)] == list(range(2, 9))
    assert (tmp_path / "ended").exists() == (source is ASYNC_APP)


@pytest.fixture
def peer(tmp_path, monkeypatch):
    """A peer that needs no broker: its app writes files, its one worker reads them."""

    @contextmanager
    def no_broker(**_options):
        yield "none://"

    @contextmanager
    def modules(_broker, _folder):
        yield {"PYTHONPATH": f"{runs.BENCHMARKS}:{tmp_path}"}

    (tmp_path / "an_app.py").write_text(APP)
    (tmp_path / "a_worker.py").write_text(WORKER)
    monkeypatch.setattr(runs, "private_redis", no_broker)
    return replace(
        OURS, name="a peer", app="an_app", place=modules,
        commands=lambda n: [("python", "-m", "a_worker")] * n,
        check=lambda log, environment, events: checked.append((log, events)),
    )  # fmt: skip


checked: list[tuple[str, int]] = []


def test_a_drain_is_over_when_every_event_has_its_stamp(peer):
    checked.clear()
    drained = runs.drain(peer, "redis", runs.Work(fails_every=5), 200, processes=1)
    assert drained.handled == 200
    assert drained.rate > 0
    assert drained.rss_mib >= drained.pss_mib > 0
    assert drained.child_pss_mib == pytest.approx(drained.pss_mib, rel=0.2)
    assert checked == [("all ran\n", 200)]


#: Takes an event out before it runs it, and is killed in the first that waits.
HASTY = """
import signal
from peers.apps import work

for sent in sorted(work.FOLDER.glob("sent-*"), key=lambda sent: int(sent.name[5:])):
    sent.unlink()
    number = int(sent.name[5:])
    work.run(work.body(number))
    if number == 4:
        work.STAMPS.set(5)
        sent.with_name("sent-5").unlink()
        signal.pause()
signal.pause()
"""


def test_what_a_killed_worker_had_taken_is_missing(peer, tmp_path, monkeypatch):
    (tmp_path / "a_worker.py").write_text(HASTY)
    monkeypatch.setattr(runs, "BACK_WITHIN", 2.0)
    one = replace(peer, commands=lambda _n: [("python", "-m", "a_worker")])
    assert runs.kill(one, "redis", runs.Work(), 20) == runs.Killed(missing=1)


def test_a_peer_that_was_through_before_it_is_killed_shows_nothing(peer):
    one = replace(peer, commands=lambda _n: [("python", "-m", "a_worker")])
    with pytest.raises(NotMeasured, match="before it was killed"):
        runs.kill(one, "redis", runs.Work(), 5)


def test_a_worker_that_ends_is_told_with_its_log(peer):
    broken = replace(peer, commands=lambda _n: [("python", "-c", "exit('no such app')")])
    with pytest.raises(NotMeasured, match="no such app"):
        runs.drain(broken, "redis", runs.Work(), 10)


def test_a_client_that_fails_is_told_with_its_error(peer, tmp_path):
    (tmp_path / "an_app.py").write_text("raise SystemExit('no client')")
    with pytest.raises(NotMeasured, match="no client"):
        runs.drain(peer, "redis", runs.Work(), 10)
