"""Build the image without an engine and say how large it is: ``python -m tools.image``."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # what tests import by bare names

from tools.image.building import Built, CannotStart, build

from addresses import servers_required

MEGABYTE = 1_000_000


def main() -> int:
    """Return 0 when the image is there; where it cannot be built 1 in CI, where it must be."""
    began = time.monotonic()
    try:
        if os.geteuid():
            raise CannotStart("only root can build and run it without an engine")
        built = build()
    except CannotStart as problem:
        print(f"  the image is missing: {problem}", file=sys.stderr)
        return 1 if servers_required() else 0
    for line in told(built):
        print(f"  {line}")
    print(f"  image there in {time.monotonic() - began:.1f} s")
    return 0


def told(built: Built) -> list[str]:
    """Return its sizes in words."""
    base, *ours = built.layers
    layers = " + ".join(_mb(layer) for layer in ours)
    rest = built.size - built.base_size
    return [
        f"on disk {_mb(built.size)}: base {_mb(built.base_size)}, ours {_mb(rest)}",
        f"in a registry {_mb(sum(built.layers))}: base {_mb(base)}, ours {layers}",
    ]


def _mb(size: int) -> str:
    return f"{size / MEGABYTE:.1f} MB"


if __name__ == "__main__":
    sys.exit(main())
