"""The checkout that is released: its files, its commit's time, its tags."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from release.problem import NotFit

#: Folders whose files are shipped.
SHIPPED = ("src", "examples", "proto")


def sources(root: Path) -> set[str]:
    """Return every file that may be shipped, from *root*, but for what Python compiled."""
    return {
        path.relative_to(root).as_posix()
        for folder in SHIPPED
        for path in (root / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def commit_time(root: Path) -> str:
    """Return the seconds that stand for the time of all files: SOURCE_DATE_EPOCH, or the commit's.

    Raises NotFit where there is neither.
    """
    return os.environ.get("SOURCE_DATE_EPOCH") or _git(root, "log", "-1", "--format=%ct").strip()


def tags(root: Path, *which: str) -> list[str]:
    """Return the tags of releases, narrowed by *which* options of `git tag`."""
    return _git(root, "tag", "--list", "v[0-9]*", *which).split()


def changes(root: Path) -> list[str]:
    """Return what differs from the commit, in git's short form."""
    return _git(root, "status", "--porcelain", "--untracked-files=all").splitlines()


def _git(root: Path, *arguments: str) -> str:
    told = subprocess.run(
        ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False
    )
    if told.returncode:
        reason = told.stderr.strip() or "it is no git checkout"
        raise NotFit(f"a release is built from a commit, and git says of {root.name}: {reason}")
    return told.stdout
