"""Fingerprint: the name of a group of failures that look alike (spec A3). Pure.

Stable across deploys, hosts and Python's minor versions: no line numbers, addresses, paths, ids or
amounts, and of the stack the application's own frames, if it has any there.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

#: Long enough that two groups never share one, short enough to read aloud.
LENGTH: Final = 16
#: Frames that count, from the end: the last ones name the cause.
FRAMES: Final = 12

_FRAME: Final = re.compile(
    r'^[ \t]*File "(?P<file>[^"]+)", line \d+, in (?P<function>\S+)', re.MULTILINE
)
_PACKAGES: Final = re.compile(r"/(?:site|dist)-packages/")
#: The standard library, on every system, and what has no file.
_STANDARD: Final = re.compile(
    r"^<|/lib(?:64)?/python\d[\d.]*t?/|/[Pp]ython[\d.-]*/[Ll]ib/|/python\d+\.zip/"
)
#: What calls a handler, wherever it is installed.
_OURS: Final = re.compile(r"/angzarr/(?:delivery|adapters)/")
_VARIABLE: Final = (
    (re.compile(r"0x[0-9a-fA-F]+"), "<address>"),
    (re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"), "<uuid>"),
    (re.compile(r"\b(?=[0-9a-fA-F]*\d)[0-9a-fA-F]{16,}\b"), "<hex>"),
    (re.compile(r"'[^'\n]*'|\"[^\"\n]*\""), "<text>"),
    (
        re.compile(
            r"(?:file://|(?<![\w:/\\.])(?:[A-Za-z]:)?)(?:[/\\][^\s/\\:'\"<>|,;()\[\]]+){2,}"
        ),
        "<path>",
    ),
    (re.compile(r"\d+(?:[.,:]\d+)*"), "<number>"),
    (re.compile(r"\s+"), " "),
)


class _Frame(NamedTuple):
    #: With forward slashes.
    file: str
    function: str


def fingerprint(
    *, handler: str, error_type: str, message: str, stack: str, in_app: Sequence[str] = ()
) -> str:
    """The group of a failure: same handler, error type, frames and kind of message.

    *in_app* are packages of the application; without them all but libraries are.
    """
    return digest(handler, error_type, normal_message(message), *normal_stack(stack, in_app))


def digest(*parts: str) -> str:
    """The name of the group of all that have these *parts*."""
    text = "\x00".join(parts).encode("utf-8", "surrogatepass")
    return hashlib.sha256(text).hexdigest()[:LENGTH]


def normal_message(message: str) -> str:
    """The first line of *message* with everything that varies named instead of shown."""
    line = message.strip().partition("\n")[0]
    for pattern, name in _VARIABLE:
        line = pattern.sub(name, line)
    return line.strip()


def normal_stack(stack: str, in_app: Sequence[str] = ()) -> list[str]:
    """``file:function`` of the last frames of a Python stack, without folders.

    Those of the application if there are any, else those of packages, else all.
    """
    frames = [
        _Frame(match["file"].replace("\\", "/"), match["function"])
        for match in _FRAME.finditer(stack)
    ]
    chosen = _of_app(frames, in_app) or _of_packages(frames) or frames
    return [f"{one.file.rpartition('/')[2]}:{_plain(one.function)}" for one in chosen][-FRAMES:]


def raised_in_app(stack: str) -> bool | None:
    """True if the last frame is the application's own; None: the stack has no frame."""
    last = None
    for match in _FRAME.finditer(stack):
        last = match
    if last is None:
        return None
    return not _of_library(_Frame(last["file"].replace("\\", "/"), last["function"]))


def _of_app(frames: Sequence[_Frame], in_app: Sequence[str]) -> list[_Frame]:
    if in_app:
        places = [f"/{package.strip('/').replace('.', '/')}" for package in in_app]
        return [one for one in frames if any(_within(f"/{one.file}", place) for place in places)]
    return [one for one in frames if not _of_library(one)]


def _within(file: str, place: str) -> bool:
    return f"{place}/" in file or file.endswith(f"{place}.py")


def _of_library(frame: _Frame) -> bool:
    patterns = (_PACKAGES, _STANDARD, _OURS)
    return any(pattern.search(frame.file) for pattern in patterns)


def _of_packages(frames: Sequence[_Frame]) -> list[_Frame]:
    return [one for one in frames if _PACKAGES.search(one.file) and not _OURS.search(one.file)]


def _plain(function: str) -> str:
    """A function's own name; later releases of Python may show its class, too."""
    return function.rpartition(".")[2]
