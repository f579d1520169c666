"""What a file of requirements pins for the image's Python on Linux, and what the wheel asks for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from email.parser import HeaderParser
from pathlib import Path

from packaging.requirements import Requirement
from pip_requirements_parser import RequirementsFile

from release.bill import Pin, plain
from release.problem import NotFit

Markers = dict[str, str]


def target(dockerfile: str) -> Markers:
    """Return the markers of the Python that the image has; raises NotFit if none is named."""
    found = re.search(r"python\D{0,20}(3\.\d+)(\.\d+)?", dockerfile, re.IGNORECASE)
    if not found:
        raise NotFit("the Dockerfile names no Python: FROM python:3.13 or the like")
    return {
        "python_version": found[1],
        "python_full_version": found[1] + (found[2] or ".0"),
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": "x86_64",
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "extra": "",
    }


def pins(requirements: Path, markers: Markers) -> Iterator[Pin]:
    """Yield what *requirements* pin where *markers* hold; raises NotFit for a line without hash."""
    for one in RequirementsFile.from_file(str(requirements)).requirements:
        if one.marker and not one.marker.evaluate(markers):
            continue
        hashes = tuple(written.partition(":")[2] for written in one.hash_options)
        version = one.get_pinned_version
        if not hashes or not version:
            raise NotFit(f"{requirements.name} pins {one.name} without a hash: run make pins")
        yield Pin(plain(one.name), version, hashes)


def needs(metadata: str, extra: str, markers: Markers) -> set[str]:
    """Return the packages that a wheel's *metadata* asks for with *extra*, "" for none."""
    asked = [
        Requirement(line) for line in HeaderParser().parsestr(metadata).get_all("Requires-Dist", [])
    ]
    return {
        plain(one.name)
        for one in asked
        if not one.marker or any(one.marker.evaluate({**markers, "extra": x}) for x in {"", extra})
    }
