"""One version, said once: the package's, its tag's and the changelog's agree. Pure.

The number stands in src/angzarr/_version.py alone; pyproject.toml takes it from there. A commit
that carries the tag v<number> is that release; any other is on its way to it.
"""

from __future__ import annotations

import re
from datetime import date

from packaging.version import InvalidVersion, Version

_DECLARED = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)
_SECTION = re.compile(r"^## \[([^\]]+)\](?: - (\S+))?$", re.MULTILINE)
UNRELEASED = "Unreleased"


def declared(package: str) -> str:
    """Return the number that the text of the package's __init__ declares, "" if none."""
    found = _DECLARED.search(package)
    return found[1] if found else ""


def wrongs(version: str, changelog: str, tags_here: list[str], tags: list[str]) -> list[str]:
    """Say what does not agree, a sentence each; *tags_here* are those of this very commit."""
    if not _well_formed(version):
        return [f"__version__ is {version!r}: say it as 1.2.3, 1.2.3rc1 or the like (PEP 440)"]
    sections = {name: written or "" for name, written in _SECTION.findall(changelog)}
    told = [f"{name!r} is no version, and no {UNRELEASED} either" for name in _unknown(sections)]
    told += [
        f"the changelog has a section of {name}, which is after {version}: raise __version__"
        for name in sections
        if _well_formed(name) and Version(name) > Version(version)
    ]
    told += [
        f"tag {tag} is on this commit, whose version is {version}: move one of them"
        for tag in tags_here
        if tag != f"v{version}"
    ]
    told += [
        f"{tag} has no section in the changelog with its day: write ## [{tag[1:]}] - YYYY-MM-DD"
        for tag in sorted({*tags, *tags_here})
        if not _is_day(sections.get(tag[1:], ""))
    ]
    if not tags_here and f"v{version}" in tags:
        told.append(f"v{version} is out, and this is another commit: raise __version__")
    return told


def _unknown(sections: dict[str, str]) -> list[str]:
    return [name for name in sections if name != UNRELEASED and not _well_formed(name)]


def _well_formed(version: str) -> bool:
    try:
        return str(Version(version)) == version
    except InvalidVersion:
        return False


def _is_day(written: str) -> bool:
    try:
        return date.fromisoformat(written).isoformat() == written
    except ValueError:
        return False
