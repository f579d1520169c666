"""OtherApps: letters in the queue of no domain that another app wrote, which people deal with.

Earlier releases put the letters of every app's plain tasks there, and each analysis worker reads
it. Whoever may write there says whose a letter is: nothing is sent or made by that word. Pure.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from angzarr.analysis.entry import Failure
from angzarr.dead_letters.letter import DeadLetter
from angzarr.dead_letters.names import domain_of_app
from angzarr.dead_letters.queue import UNKNOWN_DOMAIN
from angzarr.printable import printable

#: Characters of an app's name that are shown.
_LONGEST: Final = 60


@dataclass(frozen=True, slots=True)
class OtherApps:
    """Tells letters of other apps by the name of this one and the domains that it reads."""

    component: str
    domains: AbstractSet[str]

    def problem(self, failure: Failure) -> str:
        """Return whose *failure* is and what to do, nothing if it is this app's or not known.

        Only angzarr's apps are known by that name; a letter without a Celery task may be of others.
        """
        if not isinstance(failure, DeadLetter) or failure.domain != UNKNOWN_DOMAIN:
            return ""
        if failure.component == self.component or failure.envelope or not failure.message.task:
            return ""
        if domain_of_app(failure.component) in self.domains:
            return ""
        name = printable(failure.component[:_LONGEST])
        return (
            f"it is of the app {name!r}: replay it there; here, only --to-handler or --to-queue"
            " sends it"
        )
