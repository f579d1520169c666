"""Reader deaths: how a message is read that came back from workers that died. Pure.

What kills its reader has to be known before it is read. The count is kept outside of the process
that reads: our Redis transport writes it before the message itself, others note it in the claim
store. A broker's own counter tells nothing: a message that is given back on purpose raises it too.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

#: Deaths after which nobody reads it any more.
MOST_DEATHS: Final = 3


class Reading(Enum):
    """How a message is read."""

    WITH_OTHERS = auto()
    #: Before any other one is, while it is written down that this is done.
    ALONE = auto()
    NEVER = auto()


class ReadersDied(ValueError):
    """Why a message is not read: workers died of it, as it seems.

    *deaths* workers died that had it in hand, *reading* of them, at least, while they read it.
    """

    code = "READERS_DIED"

    def __init__(self, deaths: int, reading: int) -> None:
        super().__init__(
            f"{deaths} workers died, at least {reading} of them while they read this message:"
            " it is kept as it came, and read by none"
        )


def reading_after(deaths: int, *, redelivered: bool = False) -> Reading:
    """Return how a message is read of which *deaths* are known.

    One that was *redelivered* may have killed a worker that had noted nothing of it.
    """
    if deaths >= MOST_DEATHS:
        return Reading.NEVER
    return Reading.ALONE if deaths or redelivered else Reading.WITH_OTHERS
