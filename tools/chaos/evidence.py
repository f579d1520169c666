"""Evidence: all that is known at the end of a run of the checker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from chaos.disturbances import Circumstances
from chaos.history import Pair, Run
from chaos.revocations import Revocation
from chaos.stream import Planned


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What the ledger says of one failure, with the message its letter carries."""

    id: str
    pair: Pair
    reason: str
    status: str
    body: bytes = b""
    headers: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that is known at the end of a run."""

    #: Events whose publishing was confirmed, and when they were first sent.
    published: Sequence[Planned]
    sent_at: Mapping[str, float]
    runs: Sequence[Run]
    entries: Sequence[Entry]
    around: Circumstances = field(default_factory=Circumstances)
    #: Root and sequence of what the projection wrote, in the order of that.
    seen: Sequence[tuple[str, int]] = ()
    #: Queue or key → messages that are still there.
    left: Mapping[str, int] = field(default_factory=dict)
    #: Record of a claim → what is wrong with it.
    claims: Mapping[str, str] = field(default_factory=dict)
    #: Sentences about workers that ended though nobody had told them to.
    deaths: Sequence[str] = ()
    #: Event id → what the app said when it would not publish it.
    refused: Mapping[str, str] = field(default_factory=dict)
    #: Pair → how often facts tell which end of it; None: nothing was asked.
    told: Mapping[Pair, Counter[str]] | None = None
    #: Event id → who heard that it is revoked, before it was sent.
    revocations: Mapping[str, Revocation] = field(default_factory=dict)
    #: From the first fault until the last was over and noticed; None: there was none.
    faulted: tuple[float, float] | None = None
    quiet: bool = True
