"""A server of tools/servers for a test of its own, on ports and with data nobody else has."""

from __future__ import annotations

import importlib
import sys
import time
from pathlib import Path
from typing import Any, Self

import pytest

#: The modules that tools/servers is made of; they import each other by bare names.
_SERVERS = Path(__file__).with_name("servers")


def server_module(name: str) -> Any:
    """Return a module of tools/servers."""
    sys.path.insert(0, str(_SERVERS))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(_SERVERS))


class PrivateServer:
    """A server on 127.0.0.1 with its data in *folder*, described by a *module* of tools/servers."""

    #: Seconds until it is ready, or has ended.
    PATIENCE = 90

    def __init__(self, folder: Path, module: Any) -> None:
        self.processes = server_module("processes")
        self.server = module.SERVER
        folder.mkdir(parents=True)
        (numbers,) = server_module("ports").choose([self.server.ports], folder)
        self.place = server_module("server").Place(folder, numbers)
        self.running: list[Any] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def url(self) -> str:
        return str(self.server.addresses(self.place)[self.server.variable])

    def start(self) -> None:
        """Start it, with what an earlier start left."""
        self.running = self.server.launch(self.place)
        deadline = time.monotonic() + self.PATIENCE
        while not self.server.ready(self.place):
            if time.monotonic() > deadline:
                said = self.place.log.read_text()[-2000:]
                pytest.fail(f"no {self.server.name}: {said}", pytrace=False)
            time.sleep(0.1)

    def kill(self) -> None:
        """SIGKILL it and all that belongs to it, and wait until it is gone."""
        self.processes.kill(self.running)
        self.running = []
