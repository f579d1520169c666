"""Play many runs and print what they came to: ``python -m tests.order_model --runs 1000``.

Exit code 1: in some run something was out of order, lost or done twice.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections import Counter

from tests.order_model.runs import run

from angzarr.adapters.sql.engine.engine import build_engine


def main() -> int:
    """Return the exit code."""
    given = _parser().parse_args()
    logging.disable(logging.CRITICAL)  # each letter is a line
    engine = build_engine(given.url)
    began, deaths, totals, broken = time.monotonic(), Counter[str](), Counter[str](), {}
    for seed in range(given.seed, given.seed + given.runs):
        try:
            broker = run(engine, seed)
        except AssertionError as error:
            broken[seed] = str(error)
            continue
        deaths.update(broker.deaths)
        totals.update(events=sum(broker.counts), parked=broker.parked, skipped=len(broker.skipped),
                      resets=broker.resets)  # fmt: skip
    summary = {
        "runs": given.runs,
        "first_seed": given.seed,
        "kept": given.runs - len(broken),
        "broken": broken,
        "seconds": round(time.monotonic() - began),
        "kills": sum(deaths.values()),
        "kills_after": dict(sorted(deaths.items())),
        **totals,
    }
    print(json.dumps(summary), file=sys.__stdout__)
    engine.dispose()
    return 1 if broken else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="order_model", description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="of the first run")
    parser.add_argument("--url", required=True, help="of the lanes and the read model")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
