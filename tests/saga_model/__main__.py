"""Play many runs and print what they came to: ``python -m saga_model --runs 1000``.

Exit code 1: in some run something did not add up.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
from collections import Counter

from saga_model import runs


def main() -> int:
    """Return the exit code."""
    given = _parser().parse_args()
    logging.disable(logging.CRITICAL)  # each letter is a line
    began, totals, broken = time.monotonic(), Counter[str](), {}
    with runs.card_room(given.redis, given.books, os.environ.__setitem__) as site:
        for seed in range(given.seed, given.seed + given.runs):
            account = runs.run(site, seed)
            totals.update(account.told.totals())
            totals.update(account.cases)
            if account.problems:
                broken[seed] = account.problems
    summary = {
        "runs": given.runs,
        "first_seed": given.seed,
        "kept": given.runs - len(broken),
        "broken": broken,
        "seconds": round(time.monotonic() - began),
        **totals,
    }
    print(json.dumps(summary), file=sys.__stdout__)
    return 1 if broken else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="saga_model", description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="of the first run")
    parser.add_argument("--redis", required=True, help="URL of the broker and claim store")
    parser.add_argument("--books", required=True, help="URL of the event books")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
