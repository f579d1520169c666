"""A worker that does not end when it is told to is a breach, like one that ends by itself."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from chaos import fleet
from chaos.fleet import RECOVERED_AFTER, SLOTS, Fleet, Worker

READY = "import pathlib; pathlib.Path('w.ready').touch()"
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {READY}"


@pytest.fixture
def worker(tmp_path):
    """A worker that is ready and runs *code* on."""
    made = []

    def start(code):
        log = tmp_path / "w.log"
        command = [sys.executable, "-uc", f"{code}\nimport time\ntime.sleep(60)"]
        with log.open("wb") as words:
            process = subprocess.Popen(command, stdout=words, start_new_session=True, cwd=tmp_path)
        made.append(Worker("p1.1", SLOTS[0], process, log))
        while not made[-1].ready:
            assert process.poll() is None
        return made[-1]

    yield start
    for one in made:
        one.kill()


@pytest.mark.parametrize(
    ("code", "in_order"), [(DEAF, False), (READY, True)], ids=["deaf", "heeds it"]
)
def test_a_worker_that_does_not_end_when_told_to_is_remembered(
    tmp_path, monkeypatch, worker, code, in_order
):
    monkeypatch.setattr(fleet, "STOP_PATIENCE", 1.0 if not in_order else 20.0)
    monkeypatch.setattr(Worker, "tell_where", lambda _self: None)
    of_one = Fleet(tmp_path, {})
    one = worker(code)
    one.signal(fleet.signal.SIGTERM)
    assert of_one.wait_end(one) is in_order
    assert not one.running
    assert [death.text for death in of_one.deaths] == (
        [] if in_order else ["p1.1 did not end within 1 s of SIGTERM"]
    )


def test_a_worker_may_end_while_it_is_in_need_and_shortly_after_alone(worker):
    one = worker(READY)
    one.kill()
    assert not one.death(time.monotonic()).allowed
    with one.in_need():
        assert one.death(time.monotonic()).allowed
    assert one.death(time.monotonic()).allowed
    assert not one.death(time.monotonic() + RECOVERED_AFTER).allowed
