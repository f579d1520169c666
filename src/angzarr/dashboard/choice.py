"""Choice: the entries that one request acts on, chosen once however often it is sent (A5)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from angzarr.analysis.ledger.entry import Entry
from angzarr.analysis.ledger.idempotent_requests import WriteKey, Writes
from angzarr.dashboard.problem import Problem


class Seen(NamedTuple):
    """An entry, and its revision when it was chosen."""

    entry_id: str
    revision: int


@dataclass(slots=True)
class Choice:
    """What a request acts on; `keep` remembers it before anything is done."""

    keep: Callable[[bytes], bool] = lambda _: True
    kept: tuple[Seen, ...] | None = None

    @classmethod
    def of(cls, writes: Writes, write: WriteKey, token: str, kept: bytes | None) -> Choice:
        """Return the choice of the request that *token* works on."""
        seen = None if kept is None else tuple(Seen(*one) for one in json.loads(kept))
        return cls(lambda choice: writes.choose(write, token, choice), seen)

    def make(self, entries: Sequence[Entry]) -> None:
        """Remember *entries*; raises Problem 409 where another one works on the request."""
        self.kept = tuple(Seen(one.id, one.revision) for one in entries)
        if not self.keep(json.dumps(self.kept).encode()):
            msg = "another one works on this request by now"
            raise Problem(409, "still-running", msg, headers={"Retry-After": "5"})
