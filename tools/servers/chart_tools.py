"""What `make chart` checks the chart with: helm, promtool, and schemas of Kubernetes and of CRDs.

Helm is built from its source, once a machine. Schemas come from their own projects: those of KEDA
and of the Prometheus operator lie in their Go modules, those of Kubernetes in a package of PyPI of
which nothing is run.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import downloads
import packages
from server import CHECKOUT, CannotStart

HELM = "helm.sh/helm/v3/cmd/helm@v3.22.0"
KEDA = "github.com/kedacore/keda/v2@v2.21.0"
OPERATOR = "github.com/prometheus-operator/prometheus-operator@v0.94.1"
PINS = CHECKOUT / "requirements" / "chart.txt"
#: Where `make chart` and its tests look.
PLACE = CHECKOUT / "build" / "chart"


def ensure() -> None:
    """Have all tools, and say in build/chart/tools.json where; raises CannotStart."""
    packages.ensure("promtool", "prometheus")
    found = {
        "helm": str(helm()),
        "promtool": packages.find("promtool", ""),
        "kubernetes": str(_kubernetes() / "kubernetes_validate" / "kubernetes-json-schema"),
        "keda": str(_module("keda", KEDA, "config/crd/bases", "pkg/scalers")),
        "operator": str(_module("operator", OPERATOR, "example/prometheus-operator-crd")),
    }
    PLACE.mkdir(parents=True, exist_ok=True)
    (PLACE / "tools.json").write_text(json.dumps(found, indent=2) + "\n")


def helm() -> Path:
    """Return the program, built on first use."""

    def fill(folder: Path) -> None:
        environment = os.environ | {"GOBIN": str(folder)}
        _run_go(["install", HELM], environment)

    return downloads.once("helm", HELM.encode(), fill) / "helm"


def _kubernetes() -> Path:
    def fill(folder: Path) -> None:
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        downloads.run(
            [*pip, "install", "--require-hashes", "--no-deps", "--target", folder, "-r", PINS]
        )

    return downloads.once("kubernetes-schemas", PINS.read_bytes(), fill)


def _module(name: str, module: str, *parts: str) -> Path:
    """Return a folder with *parts* of a Go module, whose sum Go has checked."""

    def fill(folder: Path) -> None:
        told = json.loads(_run_go(["mod", "download", "-json", module], dict(os.environ)))
        for part in parts:
            shutil.copytree(Path(told["Dir"]) / part, folder / part)

    return downloads.once(name, f"{module} {parts}".encode(), fill)


def _run_go(arguments: list[str], environment: dict[str, str]) -> str:
    go = shutil.which("go") or "/usr/local/go/bin/go"
    if not Path(go).exists():
        raise CannotStart("helm and the schemas come by Go: install Go 1.26 or newer")
    result = subprocess.run(
        [go, *arguments], env=environment, cwd="/", capture_output=True, text=True, check=False
    )
    if result.returncode:
        raise CannotStart(f"go {arguments[0]} failed: {(result.stderr + result.stdout)[-600:]}")
    return result.stdout
