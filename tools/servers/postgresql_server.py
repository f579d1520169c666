"""PostgreSQL, without fsync: its data lives as long as the tests."""

from __future__ import annotations

import os
import shutil
import signal
import struct
import subprocess
import tempfile
from pathlib import Path

import packages
import probes
from processes import Process, spawn
from server import LOOPBACK, CannotStart, Place, Server

#: PostgreSQL refuses to run as root; the Debian package brings this account.
ACCOUNT = "postgres"
BINARIES = "/usr/lib/postgresql/*/bin"


def _launch(place: Place) -> list[Process]:
    data = _data_folder(place)
    if not (data / "PG_VERSION").exists():
        _initialise(data)
    # After a crash the lock names a pid that may still be a zombie; ours is known to be gone.
    (data / "postmaster.pid").unlink(missing_ok=True)
    settings = {
        "listen_addresses": LOOPBACK,
        "unix_socket_directories": "",  # a deep checkout would exceed a socket's 107 bytes
        "fsync": "off",
        "max_connections": "200",
    }
    command = [packages.find("postgres", BINARIES), "-D", data, "-p", str(place.port)]
    for key, value in settings.items():
        command += ["-c", f"{key}={value}"]
    # SIGINT is its fast shutdown: SIGTERM would wait for every client to leave.
    return [spawn(command, log=place.log, user=_account(), stop_signal=signal.SIGINT)]


def _initialise(data: Path) -> None:
    result = subprocess.run(
        [
            *(packages.find("initdb", BINARIES), "-D", data, "-A", "trust", "-U", ACCOUNT),
            *("-E", "UTF8", "--locale=C", "--no-sync"),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=data.parent,
        **({"user": ACCOUNT, "group": ACCOUNT, "extra_groups": []} if _account() else {}),
    )
    if result.returncode:
        raise CannotStart(f"initdb failed: {result.stderr.strip()}")


def _account() -> str | None:
    return ACCOUNT if os.geteuid() == 0 else None


def _data_folder(place: Place) -> Path:
    """Return where the data lie; outside the checkout if the account cannot reach into it."""
    if _account() is None:
        return place.folder / "data"
    link = place.folder / "data"
    if not link.is_symlink() and not link.exists():
        shutil.chown(place.folder, ACCOUNT, ACCOUNT)
        if not _reachable(place.folder):
            outside = Path(tempfile.mkdtemp(prefix="angzarr-postgresql-"))
            shutil.chown(outside, ACCOUNT, ACCOUNT)
            link.symlink_to(outside)
            return outside / "data"
    return link.resolve() / "data" if link.is_symlink() else link


def _reachable(folder: Path) -> bool:
    result = subprocess.run(
        ["test", "-w", folder], check=False, user=ACCOUNT, group=ACCOUNT, extra_groups=[], cwd="/"
    )
    return result.returncode == 0


def _ready(place: Place) -> bool:
    """Open a session; while it starts or recovers, the server answers with E instead of R."""
    body = struct.pack(">I", 3 << 16) + b"user\0postgres\0database\0postgres\0\0"
    return probes.ask(place.port, struct.pack(">I", len(body) + 4) + body, 1) == b"R"


SERVER = Server(
    name="postgresql",
    addresses=lambda place: {
        "ANGZARR_TEST_POSTGRESQL_URL": f"postgresql+psycopg://{ACCOUNT}@{LOOPBACK}:{place.port}/postgres"
    },
    ports=1,
    install=lambda: packages.ensure("postgres", "postgresql", BINARIES),
    launch=_launch,
    ready=_ready,
    patience=40,
    compose_ports=("ANGZARR_POSTGRESQL_PORT",),
)
