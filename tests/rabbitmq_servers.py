"""A RabbitMQ of a test's own, which it may kill and start again on the same ports with its data.

`with PrivateRabbitMQ(tmp_path / "rabbitmq") as server:` is all a test needs. Without the binary a
test is skipped on a laptop and fails in CI, as with the servers of tests/conftest.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

import pytest

from programs import require

#: The modules that tests/servers is made of; they import each other by bare names.
_SERVERS = Path(__file__).with_name("servers")
PATIENCE = 90


def _modules() -> tuple[Any, Any, Any, Any]:
    sys.path.insert(0, str(_SERVERS))
    try:
        import ports
        import processes
        import rabbitmq_server
        import server
    finally:
        sys.path.remove(str(_SERVERS))
    return ports, processes, rabbitmq_server, server


class PrivateRabbitMQ:
    """A RabbitMQ node on 127.0.0.1 with its data in *folder*."""

    def __init__(self, folder: Path) -> None:
        require("rabbitmq-server", "rabbitmq-server")
        self._folder = folder
        ports, self._processes, rabbitmq, server = _modules()
        self._server = rabbitmq.SERVER
        self._environment = rabbitmq.environment
        folder.mkdir(parents=True)
        (numbers,) = ports.choose([self._server.ports], folder)
        self._place = server.Place(folder, numbers)
        self._running: list[Any] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def url(self) -> str:
        return str(self._server.addresses(self._place)["ANGZARR_TEST_AMQP_URL"])

    def start(self) -> None:
        """Start it, with what an earlier start left."""
        self._running = self._server.launch(self._place)
        deadline = time.monotonic() + PATIENCE
        while not self._server.ready(self._place):
            if time.monotonic() > deadline:
                pytest.fail(f"no RabbitMQ: {self._place.log.read_text()[-2000:]}", pytrace=False)
            time.sleep(0.1)

    def command(self, *words: str) -> None:
        """Run ``rabbitmqctl`` with *words*; its errors are the test's."""
        done = subprocess.run(
            ["/usr/lib/rabbitmq/bin/rabbitmqctl", "--quiet", *words],
            env={**os.environ, **self._environment(self._place)},
            capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr + done.stdout

    def kill(self) -> None:
        """SIGKILL it and all that belongs to it, and wait until it is gone."""
        self._processes.kill(self._running)
        self._running = []

    def restart(self) -> None:
        """Kill it and start it again: same ports, same data."""
        self.kill()
        self.start()
