"""OtherApps: letters in the queue of no domain that another app wrote.

Earlier releases put the letters of every app's plain tasks there, and each analysis worker reads
it. Whoever may write there says whose a letter is: nothing is run or changed by that word. Pure.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from angzarr.analysis.ledger.entry import Failure
from angzarr.dead_letters.letter import DeadLetter
from angzarr.dead_letters.names import domain_of_app
from angzarr.dead_letters.queue import UNKNOWN_DOMAIN
from angzarr.runtime.text import printable

#: Characters of an app's name that are shown.
_LONGEST: Final = 60


@dataclass(frozen=True, slots=True)
class OtherApps:
    """Tells letters of other apps by the name of this one and the domains that it reads."""

    component: str
    domains: AbstractSet[str]

    def domain_of(self, failure: Failure) -> str:
        """Return the domain of the app that wrote *failure*; empty if that is this app.

        It is empty, too, where nobody knows: only apps of angzarr are known by their component,
        and a letter without a Celery task may be of another system.
        """
        if not isinstance(failure, DeadLetter) or failure.domain != UNKNOWN_DOMAIN:
            return ""
        if failure.component == self.component or failure.envelope or not failure.message.task:
            return ""
        domain = domain_of_app(failure.component)
        return "" if domain in self.domains else domain

    def problem(self, failure: Failure) -> str:
        """Return which app wrote *failure* and what to do; empty if no other app did."""
        if not self.domain_of(failure) or not isinstance(failure, DeadLetter):
            return ""
        name = printable(failure.component[:_LONGEST])
        return (
            f"the app {name!r} wrote it: replay it there, or send it from here with --to-handler"
            " or --to-queue"
        )
