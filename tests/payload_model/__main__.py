"""Play many histories and print what they came to: ``python -m payload_model --runs 1000``.

Exit code 1: in some history a body was deleted that something needed.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections import Counter

from payload_model.runs import run


def main() -> int:
    """Return the exit code."""
    given = _parser().parse_args()
    logging.disable(logging.CRITICAL)
    began, totals, wrong = time.monotonic(), Counter[str](), {}
    for seed in range(given.seed, given.seed + given.runs):
        account = run(seed)
        totals.update(kills=account.kills, deleted=account.deleted, left=len(account.left))
        if account.wrong:
            wrong[seed] = account.wrong
    summary = {
        "runs": given.runs,
        "first_seed": given.seed,
        "wrong": sum(map(len, wrong.values())),
        "histories": wrong,
        "seconds": round(time.monotonic() - began),
        **totals,
    }
    sys.stdout.write(f"{json.dumps(summary)}\n")
    return 1 if wrong else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="payload_model", description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    return parser


if __name__ == "__main__":
    sys.exit(main())
