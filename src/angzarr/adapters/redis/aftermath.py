"""Aftermath: what a step could not do as it was told, and what follows from that."""

from __future__ import annotations

import logging

from angzarr.adapters.redis.session import Session
from angzarr.adapters.redis.step import Done

_log = logging.getLogger("angzarr.transport")


class Aftermath:
    """Reads the parts of a step's reply that are empty nearly always."""

    def __init__(self) -> None:
        self._odd: set[str] = set()

    def tell(  # noqa: PLR0917 - the parts of the reply, in their order
        self,
        session: Session | None,
        done: list[Done],
        missing: list[bytes],
        fenced: list[bytes],
        kept: list[bytes],
        odd: list[bytes],
    ) -> None:
        """Tell what did not go as it should; usually all are empty."""
        for key in {name.decode(errors="replace") for name in odd} - self._odd:
            self._odd.add(key)
            _log.error("queue_unreadable: the key %s is not a list; another program wrote it", key)
        if missing:
            _log.warning(
                "acknowledged_too_late: %d messages were given to others, since the lease of this"
                " worker had ended, or had been acknowledged before a connection broke",
                len(missing),
            )
        if fenced:
            told = {tag.decode() for tag in fenced}
            for one in done:
                if one.tag in told and one.ending is not None:
                    one.ending.on_fenced()
        if kept and session is not None:
            _log.error("claims_not_ended: %d messages are given back", len(kept))
            session.give_back([tag.decode() for tag in kept])
