"""JobEdit: the edit that a replay job of one entry carries, fixed when the job begins (spec A4).

Whoever approves the job approves these bytes: nothing changes them, and no others are sent.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from angzarr.analysis.ledger.entry import Entry
from angzarr.analysis.ledger.replay_options import ReplayOrder
from angzarr.analysis.ledger.transition import replayable
from angzarr.dead_letters.codec import Form, encode
from angzarr.dead_letters.letter import DeadLetter

#: Why an edit is not sent that is not the one by which its job is known.
ALTERED: Final = "its edit is not the one that was proposed: cancel the job and edit it again"
_AGAIN: Final = "cancel the job and edit it again"
#: Why an edit is not sent whose entry another replay has.
REPLAYED: Final = f"the entry was replayed since it was edited: {_AGAIN}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEdit:
    """An edit, and the entry that it was made of as it was then."""

    entry_id: str
    #: Replays that the entry had, and the letter that told of its last failure.
    replays: int
    letter_id: str
    #: Its letters, and what was changed. Where the replay goes is in the job's plan.
    order: ReplayOrder
    #: Whether a second person must approve it.
    needs_approval: bool = False

    @property
    def sha256(self) -> str:
        """What the job and its history know the edit by: of both its letters."""
        return digest_of(self.order)


def job_edit(entry: Entry, order: ReplayOrder, *, needs_approval: bool) -> JobEdit:
    """Return the edit of *entry* by *order* for a job."""
    return JobEdit(
        entry_id=entry.id,
        replays=entry.replays,
        letter_id=entry.letter_id,
        order=order,
        needs_approval=needs_approval,
    )


def digest_of(order: ReplayOrder) -> str:
    """Return the SHA-256 of the edit in *order*, in hex: of its letters as they are kept."""
    return digest_of_kept(_kept(order.before), _kept(order.letter))


def digest_of_kept(before: bytes | None, letter: bytes | None) -> str:
    """Return the SHA-256 of an edit whose letters are kept as these bytes; of none it is empty."""
    if letter is None:
        return ""
    digest = hashlib.sha256()
    for body in (before or b"", letter):
        digest.update(len(body).to_bytes(8, "big") + body)
    return digest.hexdigest()


def _kept(letter: DeadLetter | None) -> bytes | None:
    return None if letter is None else encode(letter, Form.BINARY).body


def outdated(edit: JobEdit, entry: Entry | None) -> str:
    """Return why *edit* is no longer one of *entry* as it is now, or an empty string."""
    if entry is None:
        return "the entry was removed since it was edited"
    if entry.replays != edit.replays:
        return REPLAYED
    if entry.letter_id != edit.letter_id:
        return f"the entry failed anew since it was edited: {_AGAIN}"
    return "" if replayable(entry) else f"the entry is {entry.status} since it was edited"
