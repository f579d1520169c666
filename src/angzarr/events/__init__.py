"""Events and the raw messages that carry them; nothing here knows a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from angzarr.runtime.late_names import late_names

__all__ = [
    "NotAllPublished",
    "Priority",
]

if TYPE_CHECKING:
    from angzarr.events.event import Priority
    from angzarr.events.publication import NotAllPublished
else:  # hidden from type checkers, which would take every name for granted
    __getattr__, __dir__ = late_names(
        __name__,
        {
            "angzarr.events.event": ("Priority",),
            "angzarr.events.publication": ("NotAllPublished",),
        },
    )
