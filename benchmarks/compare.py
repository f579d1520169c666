"""Run other task queues and ours side by side: `python benchmarks/compare.py --only noop,latency`.

Without options it runs everything. The exit code says whether all that was asked for was measured.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence

from figures import FIGURES
from harness import book
from peers import section
from peers.catalogue import CATALOGUE
from peers.comparison import ROUNDS, WORKLOADS, Workload, compare
from peers.peer import Peer

import page


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what was asked for, write it down, and return the exit code."""
    asked = _parser().parse_args(arguments)
    try:
        workloads, peers = choose_workloads(asked.only), choose_peers(asked.peers)
    except KeyError as error:
        print(f"bench-peers: {error.args[0]}", file=sys.stderr)
        return 2
    missing = 0
    for broker in [asked.broker] if asked.broker else section.BROKERS:
        for workload in workloads:
            print(f"{broker}, {workload.title} …", flush=True)
            found = compare(broker, workload, peers, ROUNDS)
            missing += sum("reason" in row for row in found["rows"].values())
            kept = book.read().get(page.PEERS, {})
            fresh = {**kept, broker: {**kept.get(broker, {}), workload.key: found}}
            page.write(book.merge({page.PEERS: fresh}), FIGURES.values())
    return 1 if missing else 0


def choose_workloads(only: str) -> list[Workload]:
    """The workloads of a comma-separated list, all for an empty one; KeyError if unknown."""
    keys = [key.strip() for key in only.split(",") if key.strip()]
    for key in keys:
        if key not in WORKLOADS:
            msg = f"there is no workload {key!r}; there are {', '.join(WORKLOADS)}"
            raise KeyError(msg)
    return [WORKLOADS[key] for key in keys or WORKLOADS]


def choose_peers(named: str) -> list[Peer]:
    """The peers whose names begin with one of a comma-separated list; KeyError if none does."""
    beginnings = [one.strip().lower() for one in named.split(",") if one.strip()]
    for one in beginnings:
        if not any(name.lower().startswith(one) for name in CATALOGUE):
            msg = f"no peer's name begins with {one!r}; there are {'; '.join(CATALOGUE)}"
            raise KeyError(msg)
    return [
        peer
        for name, peer in CATALOGUE.items()
        if not beginnings or name.lower().startswith(tuple(beginnings))
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default="", metavar="WORK[,WORK…]", help="these workloads only")
    parser.add_argument("--peers", default="", metavar="NAME[,NAME…]", help="these peers only")
    parser.add_argument("--broker", default="", choices=["", *section.BROKERS], help="one alone")
    return parser


if __name__ == "__main__":
    # A time-out ends the workers and servers of the run under way, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("bench-peers: asked to stop"))
    sys.exit(main())
