"""What `docker build` does, done by buildah, which needs no engine; nothing else is taken.

Run as ``python tools/cluster/docker_stand_in.py build -t NAME FOLDER``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TOOLS.parent), str(TOOLS)]

from tools.image import building


def main() -> None:
    """Build the image; its base, if it is Python's, is the one of the image's own tests."""
    parser = argparse.ArgumentParser(prog="docker")
    build = parser.add_subparsers(required=True).add_parser("build")
    build.add_argument("-t", "--tag", required=True)
    build.add_argument("context", type=Path)
    asked = parser.parse_args()
    building.ensure_base()
    building.build_image(asked.context.resolve(), f"localhost/{asked.tag}")


if __name__ == "__main__":
    main()
