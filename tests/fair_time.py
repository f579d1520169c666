"""Fair time: what work costs on a machine as quick as the one that limits were chosen on."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable
from math import inf

#: Seconds of a processor that `_known_work` takes on a normal machine.
NORMAL = 0.012
#: Runs of which the quickest counts: a neighbour on the same core delays one, not all.
RUNS = 3


def fair_seconds(work: Callable[[], object], enough: float) -> float:
    """Return the seconds of a normal processor that *work* takes: the least of up to three runs.

    The first run that takes at most *enough* ends the measuring. *work* runs in this thread only.
    """
    least = inf
    for _ in range(RUNS):
        took = _processor_seconds(work)
        if took > enough:
            took /= slowness()
        least = min(least, took)
        if least <= enough:
            break
    return least


def slowness() -> float:
    """Return how many times slower than a normal machine this one is now; at least 1."""
    return max(1.0, min(_processor_seconds(_known_work) for _ in range(RUNS)) / NORMAL)


def _processor_seconds(work: Callable[[], object]) -> float:
    """Measure this thread only, and without full collections of all that the process has."""
    gc.freeze()
    try:
        begun = time.thread_time()
        work()
        return time.thread_time() - begun
    finally:
        gc.unfreeze()


def _known_work() -> None:
    """Read and write JSON and walk through it, as the decoders do."""
    text = "{" + ",".join(f'"k{n}":{n}' for n in range(20_000)) + "}"
    found = json.loads(text)
    sum(len(key) + value for key, value in found.items())
    json.dumps(found)
