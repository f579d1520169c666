"""Check a built site: `python -m website build/site`. Names every fault; exit code 1 if any."""

from __future__ import annotations

import sys
from pathlib import Path

from website.check import faults


def main(folder: str) -> int:
    """Check the site in *folder*."""
    site = Path(folder)
    pages = sorted(site.rglob("*.html"))
    found = list(faults(site.resolve(), [page.resolve() for page in pages]))
    for fault in found:
        print(fault, file=sys.stderr)
    print(f"{len(pages)} pages, {len(found)} faults: links, anchors, foreign hosts, markup")
    return 1 if found or not pages else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
