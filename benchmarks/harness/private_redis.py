"""A Redis of our own: what a figure counts, fills and kills on it is nobody else's."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.figure import NotMeasured

LOOPBACK = "127.0.0.1"
#: Far longer than a start takes: 10 ms.
STARTS_WITHIN = 10.0
#: Somebody else may take a port between our look and the server's.
TRIES = 5


@contextmanager
def private_redis(*, appendonly: bool = False) -> Iterator[str]:
    """Lend the URL of a fresh Redis, which ends with the block.

    Nothing of it is on disk, unless it writes its file, once a second, with *appendonly*.
    """
    binary = shutil.which("redis-server")
    if binary is None:
        msg = "no redis-server to start: install Redis, e.g. `apt install redis-server`"
        raise NotMeasured(msg)
    with tempfile.TemporaryDirectory(prefix="angzarr-bench-redis-") as folder:
        server, port = _started(binary, Path(folder), "yes" if appendonly else "no")
        try:
            yield f"redis://{LOOPBACK}:{port}/0"
        finally:
            server.send_signal(signal.SIGKILL)  # nothing of it is kept
            server.wait()


def _started(binary: str, folder: Path, appendonly: str) -> tuple[subprocess.Popen[bytes], int]:
    for _ in range(TRIES):
        port = _free_port()
        server = _start(binary, folder, port, appendonly)
        if _answers(server, port):
            return server, port
        server.kill()
        server.wait()
    msg = f"a private redis-server did not start: {(folder / 'log').read_text()[-500:]}"
    raise NotMeasured(msg)


def _start(binary: str, folder: Path, port: int, appendonly: str) -> subprocess.Popen[bytes]:
    options = ["--port", str(port), "--bind", LOOPBACK, "--dir", str(folder), "--save", ""]
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            [binary, *options, "--appendonly", appendonly],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def _answers(server: subprocess.Popen[bytes], port: int) -> bool:
    deadline = time.monotonic() + STARTS_WITHIN
    while server.poll() is None and time.monotonic() < deadline:
        try:
            with socket.create_connection((LOOPBACK, port), timeout=1) as line:
                line.sendall(b"PING\r\n")
                if line.recv(7) == b"+PONG\r\n":
                    return True
        except OSError:
            time.sleep(0.01)
    return False
