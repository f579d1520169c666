"""Case look: the dead letters of a rejected command, as the ledger has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from angzarr.analysis.ledger.entry import Entry
from angzarr.analysis.ledger.ledger import EntryFilter
from angzarr.dashboard.desk import Desk
from angzarr.errors import AngzarrError
from angzarr.sagas.log import Case
from angzarr.sagas.rejection import told_id

#: Letters of one telling; more than one is rare.
_MOST: Final = 5


def letters_of(desk: Desk, case: Case) -> Sequence[Entry] | None:
    """Return entries of the first and the last time that the source of *case* was told.

    None: the ledger is away.
    """
    ids = dict.fromkeys(told_id(case.id, asked) for asked in (0, case.asked_again))
    found: list[Entry] = []
    try:
        for event_id in ids:
            wanted = EntryFilter(event_id=event_id)
            found += desk.ledger.get_failed_events(wanted, status=None, limit=_MOST).entries
    except AngzarrError:
        return None
    return found
