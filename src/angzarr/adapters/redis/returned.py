"""Returned: how often a message came back from workers that died, told by tabs before its JSON.

Every reader of JSON skips them, stock kombu's too, and nothing is parsed to count them: what kills
its reader has to be known before it is read. One stands for the first death, of which nobody knows
the reason: others were fetched with it. From then on a message is read alone, and one tab more is
written down meanwhile; so another stands for each worker that died reading it.
"""

from __future__ import annotations

from typing import Final

from angzarr.adapters.redis.step import Fetched

_MARK: Final = b"\t"


def deaths(raw: bytes) -> int:
    """Return how many workers died that had *raw* in hand, as far as that is told."""
    if not raw.startswith(_MARK):
        return 0
    return len(raw) - len(raw.lstrip(_MARK))


def without_deaths(raw: bytes) -> bytes:
    """Return *raw* as it was published."""
    return raw.lstrip(_MARK)


def after_death(raw: bytes, before: bytes) -> bytes:
    """Return *raw* as it comes back from a worker that died with it, as *before*, in hand."""
    return _MARK * max(deaths(before), 1) + raw


def with_deaths_of(raw: bytes, before: bytes) -> bytes:
    """Return *raw*, which was *before*, as its own worker gives it back."""
    return _MARK * deaths(before) + raw


def while_read(fetched: Fetched) -> bytes | None:
    """Return what the session holds of *fetched* while it is read; see `held`."""
    return held(fetched._replace(raw=_MARK + fetched.raw))


def held(fetched: Fetched) -> bytes | None:
    """Return what the session holds of *fetched*: its list, by its length, and the raw message.

    None where the list is not known here, and so not to be written.
    """
    name = fetched.origin.encode()
    return b"%d:%s%s" % (len(name), name, fetched.raw) if name else None
