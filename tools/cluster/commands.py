"""The commands with which people work on a cluster, so that they reach this one.

`kubectl` and `helm` are the real ones, called within the cluster's network. `docker build` and
`kind load` need an engine elsewhere; here buildah builds and containerd is given what it built.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import chart_tools
from layout import Layout

HERE = Path(__file__).resolve().parent
CLUSTER = HERE


def write(place: Layout) -> None:
    """Write them; the real ones answer while a cluster is up."""
    place.commands.mkdir(parents=True, exist_ok=True)
    called = {
        "kubectl": [CLUSTER, "run", place.programs / "kubectl"],
        "helm": [CLUSTER, "run", chart_tools.helm()],
        "docker": [HERE / "docker_stand_in.py"],
        "kind": [HERE / "kind_stand_in.py"],
    }
    for name, command in called.items():
        script = place.commands / name
        words = shlex.join(str(word) for word in (sys.executable, *command))
        script.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        script.chmod(0o755)
