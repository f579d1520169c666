"""What `kind` does, done to the cluster of the tests; nothing else is taken.

Run as ``python tools/cluster/kind_stand_in.py create cluster`` and ``load docker-image NAME``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[1]
CLUSTER = [sys.executable, TOOLS / "cluster"]
sys.path[:0] = [str(TOOLS.parent), str(TOOLS)]

from tools.image import building


def main() -> int:
    """Do what is asked and return the exit code."""
    parser = argparse.ArgumentParser(prog="kind")
    verbs = parser.add_subparsers(required=True)
    create = verbs.add_parser("create").add_subparsers(required=True).add_parser("cluster")
    create.set_defaults(action=_create)
    load = verbs.add_parser("load").add_subparsers(required=True).add_parser("docker-image")
    load.add_argument("image")
    load.set_defaults(action=_load)
    asked = parser.parse_args()
    return int(asked.action(asked))


def _create(_: argparse.Namespace) -> int:
    for verb in ("up", "servers"):
        if code := subprocess.run([*CLUSTER, verb], check=False).returncode:
            return code
    return 0


def _load(asked: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "image.tar"
        building.save(f"localhost/{asked.image}", archive, f"docker.io/library/{asked.image}")
        return subprocess.run([*CLUSTER, "load", archive], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
