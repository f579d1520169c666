"""Fingerprint: the name of a group of failures that look alike (spec A3). Pure.

Stable across deploys: no line numbers, addresses, paths, ids or amounts.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

#: Long enough that two groups never share one, short enough to read aloud.
LENGTH: Final = 16
#: Frames that count, from the end: the last ones name the cause.
FRAMES: Final = 12

_FRAME: Final = re.compile(
    r'^[ \t]*File "(?P<file>[^"]+)", line \d+, in (?P<function>\S+)', re.MULTILINE
)
_VARIABLE: Final = (
    (re.compile(r"0x[0-9a-fA-F]+"), "<address>"),
    (re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"), "<uuid>"),
    (re.compile(r"\b(?=[0-9a-fA-F]*\d)[0-9a-fA-F]{16,}\b"), "<hex>"),
    (re.compile(r"'[^'\n]*'|\"[^\"\n]*\""), "<text>"),
    (re.compile(r"\d+(?:[.,:]\d+)*"), "<number>"),
    (re.compile(r"\s+"), " "),
)


def fingerprint(*, handler: str, error_type: str, message: str, stack: str) -> str:
    """Return the group of a failure: same handler, error type, frames and kind of message."""
    parts = (handler, error_type, normal_message(message), *normal_stack(stack))
    text = "\x00".join(parts).encode("utf-8", "surrogatepass")
    return hashlib.sha256(text).hexdigest()[:LENGTH]


def normal_message(message: str) -> str:
    """Return the first line of *message* with everything that varies named instead of shown."""
    line = message.strip().partition("\n")[0]
    for pattern, name in _VARIABLE:
        line = pattern.sub(name, line)
    return line.strip()


def normal_stack(stack: str) -> list[str]:
    """Return ``file:function`` of the last frames of a Python stack, without folders."""
    frames = [
        f"{match['file'].replace(chr(92), '/').rpartition('/')[2]}:{match['function']}"
        for match in _FRAME.finditer(stack)
    ]
    return frames[-FRAMES:]
