"""Google Cloud Pub/Sub: the fake of Google's own Go client, built once and kept in memory."""

from __future__ import annotations

from pathlib import Path

import downloads
import packages
import probes
from processes import Process, spawn
from server import LOOPBACK, CannotStart, Place, Server

SOURCE = Path(__file__).with_name("pubsub")
FILES = ("go.mod", "go.sum", "main.go")
#: Where Go unpacks itself, which a shell's profile adds to the path and a job's may not.
TOOLCHAIN = "/usr/local/go/bin"
#: Bytes an HTTP/2 client begins with, and the empty settings that a server waits for.
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0"
#: The type of the first frame that an HTTP/2 server sends.
SETTINGS = 4


def _binary() -> Path:
    recipe = b"".join((SOURCE / name).read_bytes() for name in FILES)
    return downloads.once("pubsub", recipe, _fill) / "pubsub"


def _fill(folder: Path) -> None:
    try:
        go = packages.find("go", TOOLCHAIN)
    except CannotStart as problem:
        raise CannotStart(
            "Pub/Sub's fake is built with Go, which is not installed: install Go 1.26 or newer,"
            " start Docker, or give the address of an emulator"
        ) from problem
    downloads.run([go, "build", "-buildvcs=false", "-o", folder / "pubsub", "."], cwd=SOURCE)


def _launch(place: Place) -> list[Process]:
    return [spawn([_binary(), str(place.port)], log=place.log)]


def _ready(place: Place) -> bool:
    """Ask for the settings with which every HTTP/2 server begins."""
    answer = probes.ask(place.port, GREETING, 9)
    return len(answer) == 9 and answer[3] == SETTINGS


SERVER = Server(
    name="pubsub",
    addresses=lambda place: {"ANGZARR_TEST_PUBSUB_EMULATOR": f"{LOOPBACK}:{place.port}"},
    ports=1,
    install=lambda: _binary() and None,
    launch=_launch,
    ready=_ready,
    patience=30,
    compose_ports=("ANGZARR_PUBSUB_PORT",),
)
