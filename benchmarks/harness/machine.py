"""Machine: on what a figure was measured, and how busy that was with other things."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from harness.book import CHECKOUT


def described() -> str:
    """Return processor, memory and system in one line."""
    cores = len(os.sched_getaffinity(0))
    return (
        f"{cores} cores ({_processor()}), {_memory_gib()} GiB,"
        f" {platform.system()} {platform.release()}, Python {platform.python_version()}"
    )


def circumstances() -> dict[str, Any]:
    """Return where, when and with which versions; part of every entry's detail."""
    return {
        "machine": described(),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "versions": {name: version(name) for name in ("celery", "kombu", "redis")},
        "load_at_start": round(os.getloadavg()[0], 1),
    }


def _processor() -> str:
    for line in _lines("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _memory_gib() -> int:
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return round(pages * size / 2**30)


def _lines(file: str) -> list[str]:
    path = Path(file)
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def _commit() -> str:
    """Return the commit, marked where the sources differ from it."""
    said = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude=*"],
        cwd=CHECKOUT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return said.stdout.strip() or "unknown"
