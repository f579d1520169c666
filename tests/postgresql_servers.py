"""A PostgreSQL of a test's own, which is the primary or stands by.

`with PrivatePostgreSQL(tmp_path / "postgresql") as server:` is all a test needs. Without the binary
a test is skipped on a laptop and fails in CI, as with the servers of tests/conftest.py.
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import Any, Self

import pytest
from tests.conftest import servers_required

#: The modules that tests/servers is made of; they import each other by bare names.
_SERVERS = Path(__file__).with_name("servers")
PATIENCE = 60


def _modules() -> tuple[Any, ...]:
    sys.path.insert(0, str(_SERVERS))
    try:
        import packages
        import ports
        import postgresql_server
        import processes
        import server
    finally:
        sys.path.remove(str(_SERVERS))
    return packages, ports, processes, postgresql_server, server


class PrivatePostgreSQL:
    """A PostgreSQL on 127.0.0.1 with its data in *folder*."""

    def __init__(self, folder: Path) -> None:
        packages, ports, self._processes, postgresql, server = _modules()
        _require(packages, postgresql.BINARIES)
        self._server = postgresql.SERVER
        folder.mkdir(parents=True)
        (numbers,) = ports.choose([self._server.ports], folder)
        self._place = server.Place(folder, numbers)
        self._running: list[Any] = []

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        shutil.rmtree((self._place.folder / "data").resolve())  # it may lie outside the folder

    @property
    def url(self) -> str:
        return str(self._server.addresses(self._place)["ANGZARR_TEST_POSTGRESQL_URL"])

    @property
    def port(self) -> int:
        return int(self._place.port)

    def stand_by(self) -> None:
        """Start it anew as a standby, with the data it has: it reads, and refuses each write."""
        self._stop()
        (configuration,) = (self._place.folder / "data").resolve().rglob("postgresql.conf")
        configuration.with_name("standby.signal").touch()
        self._start()

    def promote(self) -> None:
        """Make the primary of it again."""
        import psycopg

        url = self.url.replace("postgresql+psycopg", "postgresql")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SELECT pg_promote()")

    def _start(self) -> None:
        self._running = self._server.launch(self._place)
        deadline = time.monotonic() + PATIENCE
        while not self._server.ready(self._place):
            if time.monotonic() > deadline:
                pytest.fail(f"no PostgreSQL: {self._place.log.read_text()[-2000:]}", pytrace=False)
            time.sleep(0.1)

    def _stop(self) -> None:
        self._processes.stop(self._running, PATIENCE)
        self._running = []


def _require(packages: Any, where: str) -> None:
    try:
        packages.find("postgres", where)
    except Exception as error:
        reason = f"no PostgreSQL here: {error}"
        if servers_required():
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
