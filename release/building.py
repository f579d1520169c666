"""Wheel and sdist, built so that the same commit gives the same bytes anywhere."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import NamedTuple

from release.problem import NotFit


class Built(NamedTuple):
    """What a build made."""

    wheel: Path
    sdist: Path


def build(source: Path, into: Path, epoch: str) -> Built:
    """Build wheel and sdist of *source*; every file in them is of the time *epoch*."""
    _run(
        ["-m", "hatchling", "build", "--directory", str(into), "--target", "sdist"],
        source,
        epoch,
    )
    _run(
        ["-m", "hatchling", "build", "--directory", str(into), "--target", "wheel"],
        source,
        epoch,
    )
    return Built(_only(into, "*.whl"), _only(into, "*.tar.gz"))


def unpacked(sdist: Path, into: Path) -> Path:
    """Unpack *sdist* and return its folder."""
    with tarfile.open(sdist) as archive:
        archive.extractall(into, filter="data")
    return into / sdist.name.removesuffix(".tar.gz")


def wheel_files(wheel: Path) -> set[str]:
    """Return the files of *wheel* but for what describes it."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def sdist_files(sdist: Path) -> set[str]:
    """Return the files of *sdist*, from its own folder."""
    with tarfile.open(sdist) as archive:
        return {one.name.partition("/")[2] for one in archive.getmembers() if one.isfile()}


def described(wheel: Path) -> str:
    """Return the metadata of *wheel*."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        return archive.read(name).decode()


def _run(arguments: list[str], source: Path, epoch: str) -> None:
    told = subprocess.run(
        [sys.executable, *arguments],
        cwd=source,
        env={**os.environ, "SOURCE_DATE_EPOCH": epoch},
        capture_output=True,
        text=True,
        check=False,
    )
    if told.returncode:
        raise NotFit(f"hatchling cannot build {source.name}: {told.stderr.strip()[-2000:]}")


def _only(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise NotFit(f"{folder} holds {len(found)} files {pattern}, not one")
    return found[0]
