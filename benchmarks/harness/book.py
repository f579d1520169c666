"""Book: the file that keeps every figure's last measurement, and its copy in the repository.

`build/` is each machine's own. Of each figure the last measurement counts, be it in the book or in
the copy: who measures one figure does not make the page forget the others, or what came by git.
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
    """Return all entries by key, of each the one measured last; nothing where there is no file."""
    found: dict[str, Any] = {}
    for kept in (copy, path):
        if kept.exists():
            told = json.loads(kept.read_text(encoding="utf-8"))
            found |= {key: one for key, one in told.items() if _at(one) >= _at(found.get(key, {}))}
    return found


def _at(entry: Mapping[str, Any]) -> str:
    """When it was measured, as text that sorts; empty: it does not say."""
    return str(entry.get("detail", {}).get("measured_at", ""))


def merge(entries: Mapping[str, Any], path: Path = BOOK, copy: Path = COPY) -> dict[str, Any]:
    """Replace these entries, keep the others, and return all; each file is written as a whole."""
    merged = {**read(path, copy), **entries}
    for kept in (path, copy):
        kept.parent.mkdir(parents=True, exist_ok=True)
        fresh = kept.with_suffix(".new")
        fresh.write_text(json.dumps(merged, indent=1, ensure_ascii=False) + "\n")
        fresh.replace(kept)
    return merged
