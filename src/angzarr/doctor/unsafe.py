"""Unsafe: a setting of Celery's under which messages are lost.

`adapters.celery.safety` finds them, for the worker that refuses to start and for the doctor alike.
"""

from __future__ import annotations

from typing import NamedTuple


class Unsafe(NamedTuple):
    """A setting, or a task's option, that loses messages."""

    #: The name in Celery's settings, or of the task's option.
    setting: str
    #: What is wrong, and what to do about it.
    problem: str
    cure: str
    #: Of which task it is, where it is not of all.
    task: str = ""

    def __str__(self) -> str:
        """Return the sentence for people."""
        return f"{self.problem}: {self.cure}"
