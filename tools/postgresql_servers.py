"""A PostgreSQL of a test's own, which is the primary or stands by.

`with PrivatePostgreSQL(tmp_path / "postgresql") as server:` is all a test needs. Without the binary
a test is skipped on a laptop and fails in CI, as with the servers of tests/conftest.py.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from private_server import PrivateServer, server_module
from programs import lacking


class PrivatePostgreSQL(PrivateServer):
    """A PostgreSQL on 127.0.0.1 with its data in *folder*."""

    def __init__(self, folder: Path) -> None:
        module = server_module("postgresql_server")
        _require(server_module("packages"), module.BINARIES)
        super().__init__(folder, module)

    def __exit__(self, *_: object) -> None:
        self._stop()
        shutil.rmtree((self.place.folder / "data").resolve())  # it may lie outside the folder

    @property
    def port(self) -> int:
        return int(self.place.port)

    def stand_by(self) -> None:
        """Start it anew as a standby, with the data it has: it reads, and refuses each write."""
        self._stop()
        (configuration,) = (self.place.folder / "data").resolve().rglob("postgresql.conf")
        configuration.with_name("standby.signal").touch()
        self.start()

    def promote(self) -> None:
        """Make the primary of it again."""
        import psycopg

        url = self.url.replace("postgresql+psycopg", "postgresql")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SELECT pg_promote()")

    def _stop(self) -> None:
        self.processes.stop(self.running, self.PATIENCE)
        self.running = []


def _require(packages: Any, where: str) -> None:
    try:
        packages.find("postgres", where)
    except Exception as error:
        lacking(f"no PostgreSQL here: {error}")
