"""What is downloaded once a machine: kept outside the checkout, shared by all checkouts."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from server import CHECKOUT, CannotStart


def once(name: str, recipe: bytes, fill: Callable[[Path], None]) -> Path:
    """Return the folder of *name*, filled on first use and again when *recipe* changes."""
    return filled(_root() / f"{name}-{hashlib.sha256(recipe).hexdigest()[:12]}", fill)


def filled(folder: Path, fill: Callable[[Path], None]) -> Path:
    """Return *folder*, which one of all the processes that ask has filled, and as a whole."""
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            fill(folder)
            (folder / "complete").touch()
    return folder


def run(command: Sequence[str | Path], cwd: Path | None = None) -> None:
    """Run *command*; its last words become the reason when it fails."""
    result = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False
    )
    if result.returncode:
        words = (result.stdout + result.stderr).strip()[-600:]
        raise CannotStart(f"{Path(command[0]).name} failed: {words}")


def _root() -> Path:
    shared = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "angzarr"
    for root in (shared, CHECKOUT / "build" / "cache"):
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(root, os.W_OK):
            return root
    raise CannotStart(f"neither {shared} nor build/cache can be written")
