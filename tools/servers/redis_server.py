"""Redis, nothing on disk."""

from __future__ import annotations

import packages
import probes
from processes import Process, spawn
from server import LOOPBACK, Place, Server


def _install() -> None:
    packages.ensure("redis-server", "redis-server")
    packages.ensure("openssl", "openssl")  # for the certificates of the tests' own servers


def _launch(place: Place) -> list[Process]:
    options = {
        "--port": str(place.port),
        "--bind": LOOPBACK,
        "--dir": str(place.folder),
        "--databases": "64",  # one for each test worker
        "--save": "",
        "--appendonly": "no",
        "--daemonize": "no",
    }
    command = [packages.find("redis-server"), *(part for pair in options.items() for part in pair)]
    return [spawn(command, log=place.log)]


SERVER = Server(
    name="redis",
    addresses=lambda place: {"ANGZARR_TEST_REDIS_URL": f"redis://{LOOPBACK}:{place.port}/0"},
    ports=1,
    install=_install,
    launch=_launch,
    ready=lambda place: probes.ask(place.port, b"PING\r\n", 5) == b"+PONG",
    patience=20,
    compose_ports=("ANGZARR_REDIS_PORT",),
)
