"""Pins: which version of each configuration one event sees, kept with its claim (spec F3).

An event that was pinned before it was published carries its pins. Any other is pinned by the first
run of a handler that reads; until its message carries that, only the pins kept here say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final, Protocol

#: How long pins are kept after a run last read. They serve the message of which a crash left no
#: copy: every copy, letter and follower carries its pins itself. As long as logs of finished steps.
PIN_LIFE: Final = timedelta(days=7)
#: Configurations that one event may be pinned to.
MOST_PINS: Final = 100


class PinStore(Protocol):
    """Pins by the key of a claim, beside the claims. Raises StoreUnavailable as these do.

    Each verb is atomic, and may be sent twice.
    """

    def keep(self, key: str, pins: Mapping[str, str], /) -> Mapping[str, str]:
        """Keep each of *pins* whose id has none under *key* yet; return all under *key*.

        Returns once it is written: the first reader wins, and a crash changes nothing.
        """

    def read(self, key: str, /) -> Mapping[str, str]:
        """All pins under *key*: version by id."""
