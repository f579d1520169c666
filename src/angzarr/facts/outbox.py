"""The port of the outbox: facts that wait beside the claims until a relay has moved them (spec F1).

A claim's ending puts its facts there in its own step (`IdempotencyStore.settle`), so that neither
is without the other. A sink that is away costs no delivery: its facts wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from angzarr.facts.fact import Fact, FactLog

#: Facts that wait at most, by default; about 600 bytes each, so 120 MB.
MOST_WAITING: Final = 200_000


class WaitingFact(NamedTuple):
    """One fact in an outbox: its place there, and its line (`fact_text`)."""

    place: str
    text: str


class OutboxDepth(NamedTuple):
    """How many facts wait, roughly, and how many were dropped since it was asked last."""

    waiting: int
    dropped: int


class FactOutbox(Protocol):
    """Facts in the order in which they came. Every verb raises StoreUnavailable.

    It is bounded: beyond that the oldest are dropped, and counted.
    """

    def put(self, texts: Sequence[str], /) -> None:
        """Put *texts* last; sent twice they are there twice, which sinks tell by their ids."""

    def read(self, most: int, /) -> list[WaitingFact]:
        """The oldest *most* facts; they stay."""

    def remove(self, places: Sequence[str], /) -> None:
        """Remove the facts at *places*; those that are gone already count as removed."""

    def trim(self) -> OutboxDepth:
        """Drop the oldest beyond the bound; how many are left, and how many were dropped."""


class FactSink(Protocol):
    """Where a relay moves facts to."""

    def write(self, facts: Sequence[Fact], /) -> None:
        """Keep *facts* whose ids are new. Raises Unavailable, perhaps having kept some.

        A fact that it can never keep is logged and left out.
        """


class SeveralSinks:
    """A sink that is a database, if there is one, and logs that are told what it has kept.

    What is written again, after a kill, is in the logs twice, under one id.
    """

    def __init__(self, database: FactSink | None, logs: Sequence[FactLog]) -> None:
        self._database = database
        self._logs = tuple(logs)

    def write(self, facts: Sequence[Fact], /) -> None:
        """Keep *facts* in the database, then tell each log; raises Unavailable before that."""
        if self._database is not None:
            self._database.write(facts)
        for log in self._logs:
            log.append(facts)
