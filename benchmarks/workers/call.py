"""The service that handlers of batches call: it answers after a while, however much it is sent."""

from __future__ import annotations

import os
import time

#: Seconds of one call; a bulk write to a database or a search index takes about as long.
SECONDS = float(os.environ.get("BENCH_CALL", "0.01"))


def call() -> None:
    """Call the service."""
    if SECONDS:
        time.sleep(SECONDS)
