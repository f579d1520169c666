"""The servers of compose.yaml, where a Docker engine answers."""

from __future__ import annotations

import os
import shutil
import subprocess
import zlib
from collections.abc import Sequence

from server import CHECKOUT, CannotStart, Place, Server

#: Its own project per checkout, so that two checkouts do not take each other's containers.
PROJECT = f"angzarr-tests-{zlib.crc32(str(CHECKOUT).encode()):08x}"


def answers() -> bool:
    """Say whether an engine and the compose plugin are there."""
    if shutil.which("docker") is None:
        return False
    return all(
        subprocess.run(command, capture_output=True, timeout=30, check=False).returncode == 0
        for command in (["docker", "info"], ["docker", "compose", "version"])
    )


def up(servers: Sequence[Server], places: Sequence[Place]) -> None:
    """Start *servers* and wait until their health checks pass."""
    ports = {
        variable: str(port)
        for server, place in zip(servers, places, strict=True)
        for variable, port in zip(server.compose_ports, place.ports, strict=True)
        if variable
    }
    names = [server.name for server in servers]
    try:
        _compose(["up", "--detach", "--wait", *names], ports)
    except CannotStart:
        down(names)
        raise


def down(names: Sequence[str]) -> None:
    """Remove the containers of *names* with what they stored."""
    _compose(["down", "--volumes", *names], {})


def _compose(arguments: list[str], ports: dict[str, str]) -> None:
    result = subprocess.run(
        [
            "docker",
            "compose",
            "--project-name",
            PROJECT,
            "--project-directory",
            CHECKOUT,
            *arguments,
        ],
        env={**os.environ, **ports},
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        raise CannotStart(f"docker compose {arguments[0]} failed: {result.stderr.strip()[-600:]}")
