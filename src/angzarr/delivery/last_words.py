"""Last words: what ended a run that its handler's process did not outlive, for its poison letter.

They are kept in the claim's record until the event is claimed again. Pure.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from angzarr.dead_letters.letter import DeadLetter

#: Characters that are kept of the error's text, and of the end of its stack.
MAX_TEXT, MAX_STACK = 500, 4000


class LastWords(NamedTuple):
    """How the last run of an event ended."""

    #: Class and text of the error.
    error: str
    stack: str


class EndOfLastRun(Exception):
    """What the letter's stack shows as the cause of its poison: the stack of another process."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def written(letter: DeadLetter) -> str:
    """Return the last words of a run that *letter* tells of; it hides already what it must."""
    error = f"{letter.error_type}: {letter.error_message}" if letter.error_message else ""
    return json.dumps([(error or letter.error_type)[:MAX_TEXT], letter.error_stack[-MAX_STACK:]])


def read(text: str) -> LastWords | None:
    """Return what `written` wrote; None if it is something else."""
    try:
        error, stack = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return None
    if not (isinstance(error, str) and isinstance(stack, str)):
        return None
    return LastWords(error, stack)
