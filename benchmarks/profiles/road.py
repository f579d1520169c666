"""What one event costs the worker's own code: `python benchmarks/profiles/road.py`.

One process does what a worker's parent and child do with a message, with neither broker nor store:
the store answers at once, so its own cost and every round trip are left out. Both sides get the
same body through their own publish. Times are CPU time of the thread, in microseconds per event:
the least of many short rounds, in turn with the other side's, for whatever else the machine does
only adds to them.

    --ride     claims are made with the fetch and ended with the acknowledgement, as on one Redis
    --steps    where the child's time goes (each stopwatch adds about 0.3 us)
    --profile  cProfile of the child
    --lines    log at INFO: both sides' own lines for every event, besides the facts
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from profiles.course import Took, one_round
from profiles.sides import Side, angzarr_side, celery_side, log_to
from profiles.steps import show_steps

ROWS: tuple[tuple[str, Callable[[Took], float]], ...] = (
    ("parent: claim (by 8)", lambda took: took.claim),
    ("parent: request", lambda took: took.request),
    ("parent: pickle", lambda took: took.pickle),
    ("child: unpickle", lambda took: took.unpickle),
    ("child: decode and trace", lambda took: took.trace),
    ("child: reply", lambda took: took.reply),
    ("parent: read reply, end", lambda took: took.end),
    ("prefork: all of it", lambda took: sum(took[:7])),
    ("threads: without pickling", lambda took: took.claim + took.request + took.trace + took.end),
    ("bytes from parent to child", lambda took: took.sent),
    ("bytes from child to parent", lambda took: took.returned),
)


def show_pairs(ours: Side, theirs: Side, rounds: int) -> None:
    """Print both sides' steps beside each other."""
    pairs = [(one_round(ours), one_round(theirs)) for _ in range(rounds + 1)][1:]
    least = [Took(*map(min, zip(*took, strict=True))) for took in zip(*pairs, strict=True)]
    print(f"{'us per event':32}{'angzarr':>10}{'celery':>10}{'more':>10}")
    for name, of in ROWS:
        one, other = (of(took) for took in least)
        print(f"{name:32}{one:10.1f}{other:10.1f}{one - other:10.1f}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--events", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=25)
    for name in ("--ride", "--steps", "--profile", "--lines"):
        parser.add_argument(name, action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        log_to(log, lines=given.lines)
        ours, theirs = angzarr_side(given.events, rides=given.ride), celery_side(given.events)
        show_pairs(ours, theirs, given.rounds)
        check(log, given.events * (given.rounds + 1))
        if given.steps:
            show_steps(ours, given.rounds)
        if given.profile:
            profile = cProfile.Profile(time.perf_counter)
            one_round(ours, around=profile.runcall)
            pstats.Stats(profile).sort_stats("tottime").print_stats(60)


def check(log: Path, events: int) -> None:
    """Refuse times that were reached without handling every event and telling it."""
    with log.open(encoding="utf-8") as lines:
        told = sum(json.loads(line).get("subtype") == "handled" for line in lines)
    assert told == events, f"{told} of {events} events were handled"


if __name__ == "__main__":
    main()
