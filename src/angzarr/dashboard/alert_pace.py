"""AlertPace: test alerts one after the other, whichever process is asked; webhooks are others'."""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import Final

from angzarr.analysis.ledger.idempotent_requests import RequestBegun, WriteKey, Writes
from angzarr.clock import Clock
from angzarr.dashboard.problem import Problem

#: In so long a time one request may send test alerts, of all callers of a ledger.
EVERY: Final = timedelta(seconds=10)
#: Whose writes these are; no caller is called so.
_OURS: Final = "test alerts"


def check_pace(writes: Writes, clock: Clock) -> None:
    """Take the turn of the present span; raises Problem 429 where somebody has it."""
    span, gone = divmod(clock.now().timestamp(), EVERY.total_seconds())
    turn = secrets.token_hex(16)
    if isinstance(writes.begin(WriteKey(_OURS, f"{span:.0f}"), turn, turn), RequestBegun):
        return
    seconds = max(1, round(EVERY.total_seconds() - gone))
    msg = f"a test alert was sent just now: ask again in {seconds} s"
    raise Problem(429, "too-many", msg, headers={"Retry-After": str(seconds)})
