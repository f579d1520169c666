"""Programs found on the machine, or installed as Debian packages when we are root."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from functools import cache
from pathlib import Path

from server import CannotStart

#: apt takes a lock of its own and fails, rather than waits, when two installs meet.
_apt = threading.Lock()


def find(program: str, folders: str = "") -> str:
    """Return the path of *program*, looking into *folders* (a glob, newest version first)."""
    found = _lookup(program, folders)
    if found is None:
        raise CannotStart(f"{program} is not installed")
    return found


def ensure(program: str, package: str, folders: str = "") -> None:
    """Install Debian's *package* unless *program* is there already."""
    if _lookup(program, folders):
        return
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise CannotStart(
            f"{program} is missing and only root can install it: "
            f"run `apt-get install {package}`, start Docker, or give its address"
        )
    with _apt:
        _update()
        _apt_get("install", "--yes", "--no-install-recommends", package)
    find(program, folders)


def _lookup(program: str, folders: str) -> str | None:
    known = Path("/").glob(folders.lstrip("/")) if folders else ()
    for folder in sorted(known, key=_version, reverse=True):
        if os.access(folder / program, os.X_OK):
            return str(folder / program)
    return shutil.which(program)


def _version(folder: Path) -> list[int]:
    return [int(part) for part in folder.parts if part.isdigit()]


@cache
def _update() -> None:
    _apt_get("update")


def _apt_get(*arguments: str) -> None:
    result = subprocess.run(
        ["apt-get", "-qq", *arguments],
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        raise CannotStart(f"apt-get {' '.join(arguments)} failed: {result.stderr.strip()[-400:]}")
