"""Processes outlive a fork server that was killed, and another one begins their successors."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from typing import Any

import pytest

from angzarr.supervisor import supervisor as module
from angzarr.supervisor.pool_health import PoolHealth
from angzarr.supervisor.process_plan import ProcessPlan
from angzarr.supervisor.supervisor import Supervisor
from polling import wait_until

HELLO = {"grace": 1.0, "stalled_after": 60.0}


class FakeServers:
    """Fork servers without a fork: each is a process that sleeps, and a line that a test holds."""

    def __init__(self) -> None:
        self.lines: list[socket.socket] = []
        self.processes: list[subprocess.Popen[bytes]] = []
        self.supervisor: Any = None

    def begin(self, line: int) -> subprocess.Popen[bytes]:
        self.lines.append(socket.socket(fileno=os.dup(line)))
        self.lines[-1].settimeout(20)
        sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
        self.processes.append(subprocess.Popen(sleeper))
        return self.processes[-1]

    def say(self, which: int, **words: Any) -> None:
        self.lines[which].sendall(json.dumps(words).encode() + b"\n")

    def order(self, which: int) -> dict[str, Any]:
        """The next order that was given to a server."""
        with self.lines[which].makefile("rb", buffering=0) as line:
            return json.loads(line.readline())

    def kill(self, which: int) -> None:
        self.processes[which].kill()
        self.lines[which].close()


@pytest.fixture
def servers(monkeypatch):
    fake = FakeServers()
    monkeypatch.setattr(Supervisor, "_hear_signals", lambda _self: None)
    monkeypatch.setattr(module, "_LOOKED_EVERY", 0.01)
    monkeypatch.setattr(module, "LOADED_AGAIN_AFTER", 0.0)
    plan = ProcessPlan(1, 1, 60.0, lambda: 0.0)
    one = Supervisor(lambda _hello: plan, fake.begin, PoolHealth())
    fake.supervisor = one
    thread = threading.Thread(target=one.run)
    thread.start()
    wait_until(lambda: fake.processes, "the first fork server")
    yield fake
    one._signals.append(signal.SIGTERM)
    wait_until(lambda: one._stopping, "the supervisor to stop")
    for which in range(len(fake.processes)):
        fake.kill(which)
    thread.join(60)
    assert not thread.is_alive()


def test_the_successor_of_a_process_whose_fork_server_was_killed_does_not_free_its_claims(servers):
    servers.say(0, hello=HELLO)
    assert servers.order(0)["owners"] == []
    servers.say(0, said=1, words={"owner": "w1", "ready": True})
    servers.kill(0)
    wait_until(lambda: len(servers.processes) == 2, "another fork server")
    servers.say(1, hello=HELLO)
    assert servers.order(1) == {"number": 1, "owners": []}


def test_the_successor_of_a_process_that_died_frees_its_claims(servers):
    servers.say(0, hello=HELLO)
    servers.order(0)
    servers.say(0, said=1, words={"owner": "w1", "ready": True})
    servers.say(0, ended=1, code=-9)
    assert servers.order(0) == {"number": 1, "owners": ["w1"]}


def test_the_app_is_loaded_again_however_often_its_fork_server_is_killed(servers):
    """Also before it has loaded it: nothing else is left that could start a process."""
    servers.say(0, hello=HELLO)
    servers.order(0)
    for killed in range(3):
        servers.kill(killed)
        wait_until(lambda began=killed: len(servers.processes) == began + 2, "another fork server")
    servers.say(3, hello=HELLO)
    assert servers.order(3)["number"] == 1


def test_a_fork_server_that_dies_while_its_successor_loads_the_app_has_no_other(servers):
    servers.say(0, hello=HELLO)
    servers.order(0)
    servers.supervisor._signals.append(signal.SIGHUP)
    wait_until(lambda: len(servers.processes) == 2, "the successor")
    servers.kill(0)
    wait_until(lambda: len(servers.supervisor._servers) == 1, "the end of the first")
    servers.say(1, hello=HELLO)
    assert servers.order(1)["number"] == 1
    assert len(servers.lines) == 2
