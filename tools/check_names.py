"""Refuses what makes the sources hard to read: names that stand twice, long files, dialect.

Run by `make check`. Each message names the file and what to do. What is wrong today stands in the
lists `KNOWN_…`: take lines out of them, add none.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

SOURCES: Final = Path(__file__).parents[1] / "src" / "angzarr"
#: Lines of one file, at most.
MOST_LINES: Final = 400
#: Generated code, and schema migrations, which are never changed once they are released.
EXEMPT: Final = ("wire/", "adapters/sql/migrations/")
#: Modules in -ing that the field calls so, or that are nouns.
FIELD_WORDS: Final = frozenset(
    {
        "binding", "compensating", "finding", "grouping", "logging", "masking", "ordering",
        "paging", "polling", "pricing", "routing", "signing", "staging",
    }
)  # fmt: skip
#: Packages whose texts are in plain English, and the words that they do without.
PLAIN: Final = ("cli/", "demo/", "doctor/", "doctor_probes/", "settings/", "testing/")
DIALECT: Final = re.compile(r"\b(nobody|whoever|mend|mends|mended)\b", re.IGNORECASE)

#: Class names that still stand in several modules.
KNOWN_CLASSES: Final = frozenset[str](
    {
        "Answer",
        "Channel",
        "Health",
        "Ordered",
        "Run",
        "Snapshot",
        "_Server",
    }
)  # fmt: skip
#: Modules in -ing that still need a noun.
KNOWN_MODULES: Final = frozenset[str](
    {
        "adapters/sql/ledger/counting.py",
        "adapters/sql/ordering/moving.py",
        "adapters/sql/ordering/running.py",
        "adapters/sql/ordering/waiting.py",
        "adapters/sql/replay_jobs/choosing.py",
        "adapters/sql/replay_jobs/working.py",
        "aggregates/deciding.py",
        "aggregates/declaring.py",
        "analysis/ledger/plan_filing.py",
        "dashboard/serving.py",
        "dead_letters/concealing.py",
        "dead_letters/forwarding.py",
        "dead_letters/moving.py",
        "dead_letters/offloading.py",
        "dead_letters/own_json_reading.py",
        "sagas/asking.py",
    }
)
#: Files that are still too long.
KNOWN_LONG: Final = frozenset[str]({"errors.py"})


def problems(sources: Mapping[str, str]) -> list[str]:
    """The sentences about *sources*, which are texts by their paths below the package."""
    found: list[str] = []
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for path, text in sorted(sources.items()):
        if path.startswith(EXEMPT):
            continue
        tree = ast.parse(text, path)
        for name in {one.name for one in ast.walk(tree) if isinstance(one, ast.ClassDef)}:
            homes[name].append(path)
        found += _of_file(path, text)
        if path.startswith(PLAIN):
            found += _dialect(path, tree)
    for name, paths in sorted(homes.items()):
        if len(paths) > 1 and name not in KNOWN_CLASSES:
            found.append(
                f"{paths[-1]}: the class {name} stands in {', '.join(paths[:-1])} as well:"
                " rename one so that it says what it is"
            )
    return found


def _of_file(path: str, text: str) -> Iterator[str]:
    lines = len(text.splitlines())
    if lines > MOST_LINES and path not in KNOWN_LONG:
        yield f"{path}: {lines} lines are too many: split it by thought, at most {MOST_LINES}"
    stem = Path(path).stem
    last = stem.rpartition("_")[2]
    if stem.endswith("ing") and last not in FIELD_WORDS and path not in KNOWN_MODULES:
        yield f"{path}: a module is a noun: rename it, or add {last} to FIELD_WORDS if the field's"


def _dialect(path: str, tree: ast.AST) -> Iterator[str]:
    for one in ast.walk(tree):
        if isinstance(one, ast.Constant) and isinstance(one.value, str):
            for word in DIALECT.findall(one.value):
                if one.value != word:  # a field of JSON is a contract
                    yield f'{path}:{one.lineno}: "{word}" is dialect: write a plain sentence'


def main() -> int:
    """Print what is wrong; the exit code is 1 if something is."""
    found = problems(
        {str(path.relative_to(SOURCES)): path.read_text() for path in SOURCES.rglob("*.py")}
    )
    for one in found:
        print(f"src/angzarr/{one}", file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
