"""UnheardError: the error of a run that no hook, signal or result backend wants to hear of.

Celery copies each frame of a failed run, to show it elsewhere, which is half of what a retry costs.
Where only the worker's events may show the error, its text is written when they do.
"""

from __future__ import annotations

from traceback import format_exception
from typing import Any

from billiard.einfo import ExceptionInfo
from celery.utils.serialization import get_pickleable_exception
from celery.worker.state import task_ready


class UnheardError(ExceptionInfo):
    """What Celery's pools return for a failed run; by pickle it becomes a plain ExceptionInfo."""

    def __init__(self, error: Exception) -> None:
        self.type = type(error)
        self.exception = error

    @property
    def traceback(self) -> str:
        """The text that Celery's own has; it is written for each call."""
        return "".join(format_exception(self.exception))

    def __reduce__(self) -> tuple[Any, ...]:
        error = get_pickleable_exception(self.exception)
        return _as_plain, (error, self.traceback)

    def acknowledge(self, request: Any) -> bool:
        """Acknowledge *request* if nothing shows this error; False: Celery is to end it."""
        task = request.task
        eventer = request._eventer  # noqa: SLF001 - Celery has no other name for it
        if not (task.acks_late and task.acks_on_failure) or shows_tasks(eventer, task):
            return False
        task_ready(request)
        request.acknowledge()
        return True


def shows_tasks(eventer: Any, task: Any) -> bool:
    """True if *eventer* sends events of *task*: by ``-E``, or since remote control said so.

    The conditions are those of Celery's `Request.send_event` and of its event dispatcher. A worker
    that sends heartbeats has one in any case, for events of workers only.
    """
    if not (eventer and eventer.enabled and task.send_events):
        return False
    return not eventer.groups or "task" in eventer.groups


def _as_plain(error: Exception, text: str) -> ExceptionInfo:
    """The info that `UnheardError` stands for, in another process."""
    info = ExceptionInfo.__new__(ExceptionInfo)
    info.type, info.exception, info.traceback = type(error), error, text
    return info
