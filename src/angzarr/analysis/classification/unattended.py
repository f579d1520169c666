"""Unattended: what may be done with a failure without a person (spec A4). Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from angzarr.analysis.ledger.entry import Failure
from angzarr.analysis.ledger.transition import Action
from angzarr.dead_letters.letter import DeadLetter

#: An entry that waits is replayed later; what is too old for that needs a person now.
_RUNS_SOMETHING: Final = frozenset({Action.REPLAY, Action.WAIT, Action.COMPENSATE})
_NOT_COVERED: Final = (
    "its signature does not cover its error, attempts and dates: an older release wrote it, or"
    " somebody removed a part"
)


def _nobody_elses(_failure: Failure) -> str:
    return ""


def _everything(_letter: DeadLetter) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Unattended:
    """The limits of what the analysis worker does by itself; a person may do more."""

    #: Since it failed last. Who can write into the queue may put an old letter there again.
    oldest: timedelta
    #: Whether what a letter says of its failure is signed, or need not be.
    vouched: Callable[[DeadLetter], bool] = _everything
    #: Says that another app wrote it, or nothing: not even an archive is decided for that one.
    of_another: Callable[[Failure], str] = _nobody_elses

    def problem(self, failure: Failure, age: timedelta, action: Action = Action.REPLAY) -> str:
        """Return why *action* needs a person, or an empty string; *age*: since it failed last."""
        if why := self.of_another(failure):
            return why
        if action is Action.HOLD:
            return ""
        if isinstance(failure, DeadLetter) and not self.vouched(failure):
            return _NOT_COVERED
        if action in _RUNS_SOMETHING and age >= self.oldest:
            return f"it failed {_days(age)} ago, and after {_days(self.oldest)} a person decides"
        return ""


def _days(span: timedelta) -> str:
    days = span / timedelta(days=1)
    return f"{days:.3g} days" if days != 1 else "1 day"
