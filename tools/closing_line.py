"""Print what failed in several pytest runs and one closing line, in pytest's own form.

All of it is read from their JUnit files, and stands at the end of the log, where it is never cut.
"""

from __future__ import annotations

import sys
from collections import Counter
from datetime import datetime
from xml.etree import ElementTree as ET

#: JUnit's word → pytest's, in the order pytest prints them.
WORDS = {"failures": "failed", "passed": "passed", "skipped": "skipped", "errors": "errors"}
#: How a test's element says that it failed, and pytest's word for it.
BAD = {"failure": "FAILED", "error": "ERROR"}
#: Characters of a message that are printed.
SHOWN = 200


def main(paths: list[str]) -> int:
    """Print what failed and the sum of all runs; return 1 unless all passed that ran, and some did.

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
            for case in suite.iter("testcase"):
                for bad in filter(lambda one: one.tag in BAD, case):
                    name = f"{case.get('classname')}::{case.get('name')}"
                    print(BAD[bad.tag], name, "-", " ".join(bad.get("message", "").split())[:SHOWN])
    counts = ", ".join(f"{total[word]} {name}" for word, name in WORDS.items() if total[word])
    seconds = max(ended, default=0) - min(began, default=0)
    print(f"===== {counts or 'no tests ran'} in {seconds:.2f}s =====")
    return 0 if total["passed"] and not total["failures"] + total["errors"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
