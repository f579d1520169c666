"""Book: the file that keeps every figure's last measurement."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
BOOK = CHECKOUT / "build" / "bench.json"


def read(path: Path = BOOK) -> dict[str, Any]:
    """Return all entries by key; nothing where nothing was measured yet."""
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def merge(entries: Mapping[str, Any], path: Path = BOOK) -> dict[str, Any]:
    """Replace these entries, keep the others, and return all; the file is written as a whole."""
    merged = {**read(path), **entries}
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(merged, indent=1, ensure_ascii=False) + "\n")
    fresh.replace(path)
    return merged
