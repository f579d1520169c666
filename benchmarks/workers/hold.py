"""Hold: a handler that writes its start down and, if told to, keeps its first message."""

from __future__ import annotations

import os
import time

from workers.journal import Journal

#: Seconds; zero: no handler waits.
HOLD = float(os.environ.get("BENCH_HOLD", "0"))


def hold(journal: Journal, number: int) -> None:
    """Write the start down; the first of a message keeps it, the next ends at once."""
    journal.write(number)
    if HOLD and len(journal.starts(number)) == 1:
        time.sleep(HOLD)
