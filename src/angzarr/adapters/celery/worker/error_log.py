"""ShownErrors: Celery's own log line of a failed run, in the words of its letter, not its error."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Final, NamedTuple

#: Where Celery's tracer says how a task ended.
_LOGGER: Final = "celery.app.trace"


class Shown(NamedTuple):
    """What may be said of the failure of one task."""

    task_id: str
    text: str


_SHOWN: ContextVar[Shown | None] = ContextVar("angzarr_shown_error", default=None)


class ShownErrors(logging.Filter):
    """Puts what `show` was last given here into the line about the same task."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record pass; one about an error that hides something says less."""
        shown, said = _SHOWN.get(), record.args
        if shown is not None and isinstance(said, Mapping) and said.get("id") == shown.task_id:
            _SHOWN.set(None)
            record.args = {**said, "exc": shown.text, "traceback": ""}
            record.exc_info = None
            if hasattr(record, "data"):
                record.data = record.args
        return True


_FILTER: Final = ShownErrors()


def install() -> None:
    """Let errors be shown so in this process and those that it forks; again changes nothing."""
    logging.getLogger(_LOGGER).addFilter(_FILTER)


def show(task_id: str, text: str, stack: str = "") -> None:
    """Say what the next line about the task may tell; without `install` nobody asks."""
    _SHOWN.set(Shown(task_id, f"{text}\n{stack}".strip()))
