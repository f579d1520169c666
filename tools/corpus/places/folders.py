"""Folders of this run, removed when its process ends."""

from __future__ import annotations

import atexit
import shutil
from pathlib import Path
from tempfile import mkdtemp


def fresh() -> Path:
    """Return a new empty folder, whose name `normal` knows."""
    made = Path(mkdtemp(prefix="corpus-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made
