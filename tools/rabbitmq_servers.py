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

    def evaluate(self, expression: str) -> None:
        """Have the node evaluate *expression* of Erlang, which ends with a full stop.

        `rabbitmqctl` would start a virtual machine of its own for each: seconds on a busy machine.
        """
        node = self._environment["RABBITMQ_NODENAME"]
        cookie = Path(self._environment["HOME"], ".erlang.cookie").read_text().strip()
        done = subprocess.run(
            ["erl_call", "-sname", node, "-c", cookie, "-timeout", str(self.PATIENCE), "-e"],
            env={**os.environ, **self._environment}, input=f"{expression}\n",
            capture_output=True, text=True, timeout=self.PATIENCE, check=False,
        )  # fmt: skip
        assert done.stdout.startswith("{ok,"), done.stdout + done.stderr

    def restart(self) -> None:
        """Kill it and start it again: same ports, same data.

        RabbitMQ writes the names of new quorum queues up to 3 s after it has confirmed them. A
        single node that is killed before has queues without a leader, for ever (guarantees.md,
        "How durable RabbitMQ is"); what tests ask about comes after that.
        """
        self.evaluate("[dets:sync(Table) || Table <- dets:all()], ok.")
        self.kill()
        self.start()
