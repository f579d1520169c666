"""Book: the file that keeps every figure's last measurement, and its copy in the repository.

`build/` is each machine's own. Where there is no book yet it begins with the copy, so that who
measures one figure does not make the page forget the others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
BOOK = CHECKOUT / "build" / "bench.json"
COPY = CHECKOUT / "benchmarks" / "record.json"


def read(path: Path = BOOK, copy: Path = COPY) -> dict[str, Any]:
    """Return all entries by key, the copy's where there is no book; nothing where neither is."""
    for kept in (path, copy):
        if kept.exists():
            return dict(json.loads(kept.read_text(encoding="utf-8")))
    return {}


def merge(entries: Mapping[str, Any], path: Path = BOOK, copy: Path = COPY) -> dict[str, Any]:
    """Replace these entries, keep the others, and return all; each file is written as a whole."""
    merged = {**read(path, copy), **entries}
    for kept in (path, copy):
        kept.parent.mkdir(parents=True, exist_ok=True)
        fresh = kept.with_suffix(".new")
        fresh.write_text(json.dumps(merged, indent=1, ensure_ascii=False) + "\n")
        fresh.replace(kept)
    return merged
