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

CHECKOUT = Path(__file__).resolve().parents[2]


def write(place: Layout, first_process: int) -> None:
    """Write them; *first_process* is that of the cluster's namespaces."""
    place.commands.mkdir()
    real = {"kubectl": place.programs / "kubectl", "helm": chart_tools.helm()}
    inside = f"nsenter --target {first_process} --net --"
    for name, program in real.items():
        _write(place, name, f"KUBECONFIG={place.kubeconfig} exec {inside} {program}")
    for name in ("docker", "kind"):
        stand_in = Path(__file__).with_name(f"{name}_stand_in.py")
        _write(place, name, f"exec {shlex.quote(sys.executable)} {shlex.quote(str(stand_in))}")


def _write(place: Layout, name: str, beginning: str) -> None:
    script = place.commands / name
    script.write_text(f'#!/bin/sh\n{beginning} "$@"\n')
    script.chmod(0o755)
