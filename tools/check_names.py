"""Refuses what makes the sources hard to read: names that stand twice, long files, dialect.

Run by `make check`. Each message names the file and what to do. What is wrong today stands in the
lists `KNOWN_…`: take lines out of them, add none. An entry that is not needed any more is refused.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
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
#: Words that a plain sentence does without.
DIALECT: Final = re.compile(r"\b(nobody|whoever|mend|mends|mended)\b", re.IGNORECASE)

#: Class names that still stand in several modules.
KNOWN_CLASSES: Final = frozenset[str]()
#: Modules in -ing that still need a noun.
KNOWN_MODULES: Final = frozenset[str]()
#: Files that are still too long.
KNOWN_LONG: Final = frozenset[str]({"errors.py"})

#: What is wrong today: a list's name → its entries.
Known = Mapping[str, Collection[str]]
#: The list that may excuse it, the entry that would, and the sentence.
Wrong = tuple[str, str, str]


def problems(sources: Mapping[str, str], known: Known) -> list[str]:
    """The sentences about *sources*, which are texts by their paths below the package.

    What is *known*, by list, is passed over; an entry with which nothing is wrong is refused.
    """
    wrong: list[Wrong] = []
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for path, text in sorted(sources.items()):
        if path.startswith(EXEMPT):
            continue
        tree = ast.parse(text, path)
        for name in {one.name for one in ast.walk(tree) if isinstance(one, ast.ClassDef)}:
            homes[name].append(path)
        wrong += _of_file(path, text)
        wrong += _dialect(path, tree)
    for name, paths in sorted(homes.items()):
        if len(paths) > 1:
            sentence = (
                f"{paths[-1]}: the class {name} stands in {', '.join(paths[:-1])} as well:"
                " rename one so that it says what it is"
            )
            wrong.append(("KNOWN_CLASSES", name, sentence))
    needed = {(kind, entry) for kind, entry, _ in wrong}
    return [sentence for kind, entry, sentence in wrong if entry not in known.get(kind, ())] + [
        f"{kind}: nothing is wrong with {entry} any more: take it out"
        for kind, entries in known.items()
        for entry in sorted(entries)
        if (kind, entry) not in needed
    ]


def _of_file(path: str, text: str) -> Iterator[Wrong]:
    lines = len(text.splitlines())
    if lines > MOST_LINES:
        sentence = f"{path}: {lines} lines are too many: split it by thought, at most {MOST_LINES}"
        yield "KNOWN_LONG", path, sentence
    stem = Path(path).stem
    last = stem.rpartition("_")[2]
    if stem.endswith("ing") and last not in FIELD_WORDS:
        sentence = (
            f"{path}: a module is a noun: rename it, or add {last} to FIELD_WORDS if the field's"
        )
        yield "KNOWN_MODULES", path, sentence


def _dialect(path: str, tree: ast.AST) -> Iterator[Wrong]:
    for one in ast.walk(tree):
        if isinstance(one, ast.Constant) and isinstance(one.value, str):
            for word in DIALECT.findall(one.value):
                if one.value != word:  # a field of JSON is a contract
                    place = f"{path}:{one.lineno}"
                    yield "", place, f'{place}: "{word}" is dialect: write a plain sentence'


def main() -> int:
    """Print what is wrong; the exit code is 1 if something is."""
    found = problems(
        {str(path.relative_to(SOURCES)): path.read_text() for path in SOURCES.rglob("*.py")},
        {name: entries for name, entries in globals().items() if name.startswith("KNOWN_")},
    )
    for one in found:
        place = "tools/check_names.py: " if one.startswith("KNOWN_") else "src/angzarr/"
        print(place + one, file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
