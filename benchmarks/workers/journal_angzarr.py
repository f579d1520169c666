"""The same handler on angzarr: claims, owner lease, start count."""

from __future__ import annotations

from workers.environment import FOLDER
from workers.hold import hold
from workers.journal import Journal
from workers.numbered import Numbered, app, send

__all__ = ["app", "send"]

JOURNAL = Journal(FOLDER / "journal")


@app.handler(Numbered, domain="order", name="bench.journal")
def journal(event: Numbered) -> None:
    hold(JOURNAL, event.number)
