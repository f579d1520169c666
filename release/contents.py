"""What belongs into the wheel and the sdist: every file of the package, and nothing else. Pure."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from pathlib import PurePosixPath

#: Suffixes of files in the package; one that is not listed was left there by mistake.
KINDS = frozenset(
    {".py", ".pyi", ".typed", ".lua", ".yaml", ".html", ".css", ".js", ".svg", ".ini"}
)
#: Files of the sdist beside src/, examples/ and proto/.
ROOT = frozenset(
    {"CHANGELOG.md", "LICENSE", "README.md", "pyproject.toml", "PKG-INFO", ".gitignore"}
)
#: What the package cannot work without, and what it would lose: a pattern's * takes folders too.
NEEDED = {
    "angzarr/py.typed": "its types",
    "angzarr/adapters/redis/*.lua": "its scripts in Redis",
    "angzarr/adapters/sql/migrations/*.py": "its tables",
    "angzarr/analysis/rules.yaml": "the rules of the analysis",
    "angzarr/dashboard/templates/*.html": "the dashboard's pages",
    "angzarr/dashboard/static/*": "the dashboard's style",
    "angzarr/examples/*.py": "the demo",
}


def in_wheel(sources: Iterable[str]) -> set[str]:
    """Return what the wheel must hold of *sources*, paths from the root of the checkout."""
    moved = {"src/angzarr/": "angzarr/", "examples/": "angzarr/examples/"}
    return {
        new + path.removeprefix(old)
        for path in sources
        for old, new in moved.items()
        if path.startswith(old)
    }


def in_sdist(sources: Iterable[str]) -> set[str]:
    """Return what the sdist must hold of *sources*."""
    return {path for path in sources if path.startswith(("src/", "examples/", "proto/"))} | ROOT


def wrongs(what: str, expected: set[str], held: set[str]) -> list[str]:
    """Say what *what* lacks, and what it holds without need, a sentence each."""
    lacking = [f"{what} lacks {path}" for path in sorted(expected - held)]
    stray = [
        f"{what} holds {path}, which does not belong there" for path in sorted(held - expected)
    ]
    return lacking + stray


def strays(wheel: Iterable[str]) -> list[str]:
    """Say which files of *wheel* are of no kind that the package has."""
    return [
        f"{path} is of no kind that the package has: remove it, or add its kind to release/contents"
        for path in sorted(wheel)
        if PurePosixPath(path).suffix not in KINDS
    ]


def unmet(wheel: Iterable[str], needed: dict[str, str]) -> list[str]:
    """Say which *needed* patterns nothing in *wheel* fits: a rename that the patterns missed."""
    held = list(wheel)
    return [
        f"nothing in the wheel is {pattern}: {loss} would be lost"
        for pattern, loss in needed.items()
        if not fnmatch.filter(held, pattern)
    ]
