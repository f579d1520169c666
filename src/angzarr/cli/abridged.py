"""Abridged: texts that repeat a long error message, which is shown whole elsewhere. Pure."""

from __future__ import annotations

from itertools import takewhile
from typing import Final

#: Characters of a message that a line repeats.
LONGEST: Final = 120


class Abridged:
    """Cuts one message short, wherever a text repeats it; what else the text says stays."""

    def __init__(self, message: str) -> None:
        self._message = _one_line(message)
        self.cuts = len(self._message) > LONGEST

    def __call__(self, text: str) -> str:
        """Return *text* as one line, with the message cut short where it is long."""
        line = _one_line(text)
        if not self.cuts:
            return line
        before, found, after = line.partition(self._message[:LONGEST])
        if not found:
            return line
        more = zip(self._message[LONGEST:], after, strict=False)
        repeated = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], more))
        return f"{before}{found}…{after[repeated:].removeprefix('…')}"


def _one_line(text: str) -> str:
    return " ".join(text.split())
