"""Print one closing line for several pytest runs, in pytest's own form, from their JUnit files."""

from __future__ import annotations

import sys
from collections import Counter
from datetime import datetime
from xml.etree import ElementTree as ET

#: JUnit's word → pytest's, in the order pytest prints them.
WORDS = {"failures": "failed", "passed": "passed", "skipped": "skipped", "errors": "errors"}


def main(paths: list[str]) -> int:
    """Print the sum of all runs and return 1 unless something passed and nothing failed.

    The runs may overlap: their seconds count from the first's beginning to the last's end.
    """
    total: Counter[str] = Counter()
    began: list[float] = []
    ended: list[float] = []
    for path in paths:
        for suite in ET.parse(path).getroot().iter("testsuite"):  # noqa: S314 - pytest wrote it
            found = {word: int(suite.get(word, 0)) for word in ("failures", "errors", "skipped")}
            total.update(found | {"passed": int(suite.get("tests", 0)) - sum(found.values())})
            began.append(datetime.fromisoformat(suite.get("timestamp", "")).timestamp())
            ended.append(began[-1] + float(suite.get("time", 0)))
    counts = ", ".join(f"{total[word]} {name}" for word, name in WORDS.items() if total[word])
    seconds = max(ended, default=0) - min(began, default=0)
    print(f"===== {counts or 'no tests ran'} in {seconds:.2f}s =====")
    return 0 if total["passed"] and not total["failures"] + total["errors"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
