"""Each hardship strikes, and is over when it is over: a fault that is none would prove nothing."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from chaos import faults, injectors
from chaos.hardships import (
    CLOCK,
    Birth,
    heed,
    no_more_files,
    no_more_log,
    no_more_threads,
    read_log,
    spawn,
)
from polling import wait_until
from tcp_proxy import LossyProxy

#: Tries *what* again and again, and writes down how it went.
TRIES = """
import pathlib, sys, threading, os, time
{before}
out = os.open("said", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
while True:
    try:
        {what}
    except (OSError, RuntimeError) as error:
        os.write(out, f"{{type(error).__name__}} {{error}}\\n".encode())
    else:
        os.write(out, b"well\\n")
    time.sleep(0.02)
"""


class Tried:
    """A process that tries something, and what became of it last."""

    def __init__(self, folder: Path, what: str, before: str = "") -> None:
        self._said = folder / "said"
        command = [sys.executable, "-c", TRIES.format(what=what, before=before)]
        path = str(Path(__file__).resolve().parents[3] / "tools")
        self.process = subprocess.Popen(command, cwd=folder, env={"PYTHONPATH": path})

    def last(self) -> str:
        words = self._said.read_text().splitlines() if self._said.exists() else []
        return words[-1] if words else ""

    def becomes(self, word: str) -> None:
        wait_until(lambda: word in self.last())


@pytest.fixture
def tried(tmp_path: Path) -> Iterator[list[Tried]]:
    made: list[Tried] = []
    yield made
    for one in made:
        one.process.kill()
        one.process.wait()


def test_no_file_can_be_opened_and_then_again(tmp_path: Path, tried: list[Tried]) -> None:
    opens = "held = [os.open('/dev/null', 0) for _ in range(20)]; list(map(os.close, held))"
    tried.append(one := Tried(tmp_path, opens))
    one.becomes("well")
    with no_more_files(one.process.pid):
        one.becomes("Too many open files")
    one.becomes("well")


@pytest.mark.parametrize(
    ("what", "refusal"),
    [
        ("threading.Thread(target=int).start()", "RuntimeError can't start new thread"),
        ("pid = os.fork(); pid or os._exit(0); os.waitpid(pid, 0)", "BlockingIOError"),
    ],
    ids=["thread", "process"],
)
def test_no_thread_and_no_process_can_be_begun_and_then_again(
    tmp_path: Path, tried: list[Tried], what: str, refusal: str
) -> None:
    marker = tmp_path / "starved"
    before = f"from chaos import hardships; hardships.heed({{hardships.STARVED: {str(marker)!r}}})"
    tried.append(one := Tried(tmp_path, what, before))
    one.becomes("well")
    with no_more_threads(marker):
        one.becomes(refusal)
    one.becomes("well")


def test_a_process_without_a_marker_is_left_alone() -> None:
    before = threading.Thread.start
    heed({})
    assert threading.Thread.start is before


WRITES = """
import os, time
while True:
    try:
        os.write(2, b"a line\\n")
    except OSError as error:
        said = type(error).__name__ + " " + str(error)
    else:
        said = "well"
    with open("said", "w") as out:
        out.write(said)
    time.sleep(0.02)
"""


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts a process that writes line after line into its log."""
    made: list[subprocess.Popen[bytes]] = []

    def start(**options: Any) -> subprocess.Popen[bytes]:
        log = tmp_path / "w.log"
        made.append(spawn([sys.executable, "-c", WRITES], log, cwd=tmp_path, **options))
        return made[-1]

    yield start
    for one in made:
        one.kill()
        one.wait()


def said(folder: Path) -> str:
    return (folder / "said").read_text() if (folder / "said").exists() else ""


def test_a_full_disk_refuses_each_line_of_the_log_and_no_other_file(
    tmp_path: Path, writer: Callable[..., subprocess.Popen[bytes]]
) -> None:
    process = writer()
    wait_until(lambda: b"a line" in read_log(tmp_path / "w.log"))
    with no_more_log(process.pid):
        wait_until(lambda: "File too large" in said(tmp_path))
    wait_until(lambda: said(tmp_path) == "well")


def test_a_log_breaks_when_whoever_reads_it_is_gone(
    tmp_path: Path, writer: Callable[..., subprocess.Popen[bytes]]
) -> None:
    gone = tmp_path / "gone"
    writer(broken=gone.exists)
    wait_until(lambda: b"a line" in read_log(tmp_path / "w.log"))
    wait_until(lambda: said(tmp_path) == "well")
    gone.touch()
    wait_until(lambda: "Broken pipe" in said(tmp_path))


@pytest.mark.parametrize("birth", injectors.SKEWS, ids=str)
def test_a_wrong_clock_tells_angzarr_and_celery_another_time_and_measures_spans_right(
    birth: Birth,
) -> None:
    code = (
        "import os, time, angzarr, celery.app.base, kombu\n"
        "from angzarr.clock import SystemClock\n"
        "from chaos.hardships import heed\n"
        "heed(os.environ)\n"
        "began = time.monotonic(); time.sleep(0.05)\n"
        "print(time.time(), SystemClock().now().timestamp(), celery.Celery().now().timestamp())\n"
        "print(time.monotonic() - began)"
    )
    path = str(Path(__file__).resolve().parents[3] / "tools")
    told = subprocess.run(
        [sys.executable, "-c", code], env={CLOCK: str(birth.clock), "PYTHONPATH": path},
        stdout=subprocess.PIPE, text=True, check=True,
    ).stdout.split()  # fmt: skip
    for moment in told[:3]:
        assert abs(float(moment) - time.time() - birth.clock) < 60
    assert 0.05 <= float(told[3]) < 60


def test_each_kind_of_fault_is_done_by_somebody() -> None:
    assert set(faults.KINDS) == set(injectors._DO)


def test_a_short_run_has_none_of_the_long_faults() -> None:
    seen = {fault.kind for seed in range(50) for fault in faults.plan(seed, 30, "rabbitmq")}
    assert not seen & {name for name, kind in faults.KINDS.items() if kind.long}


def test_a_long_run_has_every_kind() -> None:
    for broker in ("redis", "rabbitmq", "sqs"):
        seen = {
            fault.kind for seed in range(5) for fault in faults.plan(seed, 300, broker, long=True)
        }
        assert seen == {name for name, kind in faults.KINDS.items() if broker in kind.brokers}


def test_what_is_swallowed_reaches_nobody_and_a_new_connection_is_well() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_echo, args=(server,), daemon=True).start()
        with LossyProxy("127.0.0.1", server.getsockname()[1]) as proxy:
            old = _connected(proxy)
            proxy.swallow()
            old.sendall(b"said")  # and acknowledged
            with pytest.raises(TimeoutError):
                old.recv(10)
            _connected(proxy).close()
            old.close()


def _connected(proxy: LossyProxy) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", proxy.port))
    made.sendall(b"hello")
    made.settimeout(10)
    assert made.recv(10) == b"hello"
    made.settimeout(0.3)
    return made


def _echo(server: socket.socket) -> None:
    with suppress(OSError):
        while True:
            threading.Thread(target=_answer, args=(server.accept()[0],), daemon=True).start()


def _answer(client: socket.socket) -> None:
    with client:
        while said := client.recv(10):
            client.sendall(said)
