"""A RabbitMQ of a test's own, which it may kill and start again on the same ports with its data.

`with PrivateRabbitMQ(tmp_path / "rabbitmq") as server:` is all a test needs. Without the binary a
test is skipped on a laptop and fails in CI, as with the servers of tests/conftest.py.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from private_server import PrivateServer, server_module
from programs import require


class PrivateRabbitMQ(PrivateServer):
    """A RabbitMQ node on 127.0.0.1 with its data in *folder*."""

    def __init__(self, folder: Path) -> None:
        require("rabbitmq-server", "rabbitmq-server")
        module = server_module("rabbitmq_server")
        super().__init__(folder, module)
        self._environment = module.environment(self.place)

    def command(self, *words: str) -> None:
        """Run ``rabbitmqctl`` with *words*; its errors are the test's."""
        done = subprocess.run(
            ["/usr/lib/rabbitmq/bin/rabbitmqctl", "--quiet", *words],
            env={**os.environ, **self._environment},
            capture_output=True, text=True, timeout=self.PATIENCE, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr + done.stdout

    def restart(self) -> None:
        """Kill it and start it again: same ports, same data.

        RabbitMQ writes the names of new quorum queues up to 3 s after it has confirmed them. A
        single node that is killed before has queues without a leader, for ever (guarantees.md,
        "How durable RabbitMQ is"); what tests ask about comes after that.
        """
        self.command("eval", "[dets:sync(Table) || Table <- dets:all()], ok.")
        self.kill()
        self.start()
