"""compose.yaml as docker compose reads it: by its own library, built with Go once a machine."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from private_server import server_module
from programs import lacking

CHECKOUT = Path(__file__).resolve().parents[2]
FILE = CHECKOUT / "compose.yaml"
SOURCE = Path(__file__).with_name("compose")
FILES = ("go.mod", "go.sum", "main.go")

downloads: Any = server_module("downloads")
packages: Any = server_module("packages")
CannotStart: Any = server_module("server").CannotStart
TOOLCHAIN: str = server_module("pubsub_server").TOOLCHAIN


class Refused(Exception):
    """What docker compose would say instead of starting anything."""


def load(file: Path = FILE, **variables: str) -> Mapping[str, Any]:
    """Return the project of *file*, with what the shell would say in *variables* alone."""
    environment = {"PATH": os.environ["PATH"], **variables}
    done = subprocess.run(
        [_loader(), str(file)], capture_output=True, text=True, check=False, env=environment
    )
    if done.returncode:
        raise Refused(done.stderr.strip())
    project: Mapping[str, Any] = json.loads(done.stdout)
    return project


def loaded(**variables: str) -> Mapping[str, Any]:
    """Return the project; where its library cannot be built a test is skipped, and fails in CI."""
    try:
        return load(**variables)
    except CannotStart as problem:
        lacking(str(problem))


def _loader() -> Path:
    recipe = b"".join((SOURCE / name).read_bytes() for name in FILES)
    folder: Path = downloads.once("compose-loader", recipe, _fill)
    return folder / "compose"


def _fill(folder: Path) -> None:
    go = packages.find("go", TOOLCHAIN)
    downloads.run([go, "build", "-buildvcs=false", "-o", folder / "compose", "."], cwd=SOURCE)
