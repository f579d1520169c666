"""`angzarr saga` over real workers: a person mends a source and has it asked again."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

import pytest

import warm_process
from angzarr.aggregates import Address, Intent
from hand_clock import HandClock
from polling import wait_until
from system.conftest import HERE, PATH, stop
from tcp_proxy import unused_port


class Room:
    """The app in this process, its workers and commands in others."""

    def __init__(self, folder, environment, monkeypatch):
        self.log, self.mended = folder / "worker.log", folder / "mended"
        self.log.touch()
        self.environment = {**environment, "SAGA_MENDED": str(self.mended)}
        for name, value in self.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.syspath_prepend(str(HERE))
        sys.modules.pop("saga_app", None)
        self.module = importlib.import_module("saga_app")
        self.app = self.module.app

    def close(self) -> None:
        self.app.close()
        sys.modules.pop("saga_app", None)

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    @contextmanager
    def worker(self) -> Iterator[None]:
        """One that takes a message after the other."""
        said = len(self.text())
        process = warm_process.begin(
            [
                "celery", "-A", "saga_app", "worker", "--pool", "solo", "--loglevel", "INFO",
                "--without-mingle", "--without-gossip", "--hostname", f"w{uuid.uuid4().hex[:8]}@%h",
            ],
            folder=HERE, environment=self._env(), log=self.log,
        )  # fmt: skip
        try:
            wait_until(lambda: " ready." in self.text()[said:], "the worker to be ready")
            yield
        finally:
            stop(process)

    def _env(self, **more: str) -> dict[str, str]:
        return {**os.environ, **self.environment, **more, "PYTHONPATH": PATH}

    def run(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run `angzarr saga`."""
        return warm_process.run(
            ["angzarr", "-A", "saga_app", "saga", *arguments],
            folder=HERE, environment=self._env(**more),
        )  # fmt: skip

    def said(self, *arguments: str):
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def reserve(self, root: str) -> None:
        self.app.send_command(self.module.Reserve(amount=5), domain=self.module.PURSE, root=root)

    def case(self, root: str):
        """The case of the purse *root*, as the log has it; None: not yet."""
        from angzarr.sagas.log import CaseFilter

        with closing(self.app.ops.open_event_stores()) as event_stores:
            cases = event_stores.rejections.cases(CaseFilter(domain=self.module.PURSE), limit=99)
        found = [case for case in cases if case.source.root == root]
        return found[0] if found else None

    def wait_case(self, root: str, status: str):
        def ended():
            case = self.case(root)
            return case if case and case.status == status else None

        return wait_until(ended, f"{root} to be {status}")

    def types(self, root: str) -> list[str]:
        return [event.type for event in self.app.book(self.module.PURSE, root).events]


@pytest.fixture
def room(tmp_path, monkeypatch, unique_name, redis_url, postgresql_url, amqp_url):
    environment = {
        "ANGZARR_PREFIX": unique_name,
        "SAGA_BROKER": redis_url,
        "SAGA_BOOKS": postgresql_url,
        "SAGA_DLQ": json.dumps({"backend": "amqp", "amqp_url": amqp_url}),
        "ANGZARR_STORE": redis_url,
    }
    room = Room(tmp_path, environment, monkeypatch)
    yield room
    room.close()


def test_a_failed_case_is_compensated_once_by_whoever_mends_it_and_asks_twice(room):
    with room.worker():
        room.reserve("p-1")
        failed = room.wait_case("p-1", "failed")
    assert "no rate for 5" in failed.answer
    (listed,) = room.said("list", "--status", "failed")["cases"]
    assert listed["id"] == failed.id
    told = room.said("show", failed.id[:12])
    assert (told["trigger"]["type"], told["command"]["type"]) == ("Reserved", "Seat")
    assert told["failure_id"]

    room.mended.touch()
    for times in (1, 2):  # no worker runs: both are sent
        asked = room.said("compensate", failed.id[:12], "--yes", "--note", "there is a rate")
        assert (asked["status"], asked["asked_again"]) == ("told", times)
    with room.worker():
        room.wait_case("p-1", "compensated")
        room.reserve("p-2")  # behind the second asking, in one queue
        room.wait_case("p-2", "compensated")
    assert room.types("p-1") == ["Reserved", "Released"]
    assert room.app.load(room.module.Purse, "p-1").state.reserved == 0
    told = room.said("show", failed.id)
    assert [event["type"] for event in told["compensation"]] == ["Released"]
    assert (told["asked_again"], told["note"]) == (2, "there is a rate")

    again = room.run("compensate", failed.id, "--yes")
    assert again.returncode == 1
    assert "its source compensated" in again.stderr
    assert room.types("p-1") == ["Reserved", "Released"]


def test_a_source_that_fails_again_is_a_failed_case_again(room):
    with room.worker():
        room.reserve("p-1")
        failed = room.wait_case("p-1", "failed")
        assert room.run("compensate", failed.id, "--yes").returncode == 0
        again = wait_until(
            lambda: (case := room.wait_case("p-1", "failed")).asked_again and case, "the end"
        )
        assert again.asked_again == 1
        room.mended.touch()
        assert room.run("compensate", failed.id, "--yes").returncode == 0
        room.wait_case("p-1", "compensated")
    assert room.types("p-1") == ["Reserved", "Released"]


def test_a_broker_that_is_away_is_told_and_asking_once_more_compensates(room):
    with room.worker():
        room.reserve("p-1")
        failed = room.wait_case("p-1", "failed")
    room.mended.touch()
    away = room.run(
        "compensate", failed.id, "--yes", SAGA_BROKER=f"redis://127.0.0.1:{unused_port()}/0"
    )
    assert away.returncode == 1
    assert "nothing is lost, do it again with --yes when the broker is back" in away.stderr
    assert "Traceback" not in away.stderr
    assert room.run("compensate", failed.id, "--yes").returncode == 0
    with room.worker():
        room.wait_case("p-1", "compensated")
    assert room.types("p-1") == ["Reserved", "Released"]


def test_what_a_process_decided_that_died_is_published_by_a_worker(room):
    room.mended.touch()
    earlier = HandClock()  # long before a worker would leave it to whoever decided
    with closing(room.app.ops.open_event_stores()) as event_stores:
        event_stores.books._clock = earlier
        decider = replace(room.app.decider, books=event_stores.books)
        intent = Intent(address=Address(room.module.PURSE, "p-9"))
        decider.execute(intent.command(room.module.Reserve(amount=5)))
    assert room.types("p-9") == ["Reserved"]
    with room.worker():
        room.wait_case("p-9", "compensated")
    assert room.types("p-9") == ["Reserved", "Released"]
