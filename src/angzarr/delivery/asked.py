"""Asked: what a run asked for while it went on. How the run ends is judged by it.

Celery's `self.retry` may be called and not be the end of a run: with ``throw=False`` it returns,
and where no retry is left it raises an error that the task may catch.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass

from angzarr.errors import Directive, RetryLater


@dataclass(slots=True)
class Asked:
    """Belongs to one run; only that run's own code writes it."""

    #: The retry that the run wants once it has ended, however it ends; the last one counts. One
    #: that is raised, too: code that catches it has asked all the same.
    retry: RetryLater | None = None
    #: Whether the run was told that it has no retry left: then no error of its is tried again.
    used_up: bool = False

    def instead_of(self, error: Exception) -> Exception:
        """Return the error that counts for *error*, which ended the run.

        A retry that was asked for before wins, with *error* as its cause. What the run says
        outright by a `Directive` came later, and wins over that.
        """
        if self.retry is None or isinstance(error, Directive):
            return error
        self.retry.cause = error
        return self.retry


#: What the run that goes on here has asked for; None: nothing runs here.
ASKED: ContextVar[Asked | None] = ContextVar("angzarr_asked", default=None)
