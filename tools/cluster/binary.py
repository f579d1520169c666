"""The one program that is every part of Kubernetes: built of Go modules, once a machine."""

from __future__ import annotations

import os
import re
from pathlib import Path

import downloads
import packages
from server import CannotStart

SOURCE = Path(__file__).with_name("go")
FILES = ("go.mod", "go.sum", "main.go", "pause/main.go")
#: Where Go unpacks itself, which a shell's profile adds to the path and a job's may not.
TOOLCHAIN = "/usr/local/go/bin"
#: By what names the program is called.
PARTS = (
    "coredns",
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubectl",
    "kubelet",
)
_RELEASE = re.compile(r"^\tk8s\.io/kubernetes v(\d+)\.(\d+)\.(\d+)$", re.MULTILINE)


def folder() -> Path:
    """Return the folder of all parts and of `pause`; building takes minutes, the first time."""
    recipe = b"".join((SOURCE / name).read_bytes() for name in FILES)
    return downloads.once("kubernetes", recipe, _fill)


def release() -> str:
    """Return the release of Kubernetes, as v1.34.2."""
    return "v" + ".".join(_numbers())


def _numbers() -> tuple[str, str, str]:
    found = _RELEASE.search((SOURCE / "go.mod").read_text())
    if found is None:
        raise CannotStart(f"{SOURCE}/go.mod names no release of k8s.io/kubernetes")
    major, minor, patch = found.groups()
    return major, minor, patch


def _fill(into: Path) -> None:
    try:
        go = packages.find("go", TOOLCHAIN)
    except CannotStart as problem:
        raise CannotStart("Kubernetes is built with Go, which is not installed") from problem
    _build(go, into / "cluster", ".", f"-s -w {_version_flags()}")
    # No libc is in its image.
    _build(go, into / "pause", "./pause", "-s -w", "CGO_ENABLED=0")
    for name in PARTS:
        (into / name).symlink_to("cluster")


def _build(go: str, program: Path, package: str, flags: str, *environment: str) -> None:
    command = [go, "build", "-buildvcs=false", f"-ldflags={flags}", "-o", program, package]
    downloads.run(["env", *environment, *command], cwd=SOURCE)


def _version_flags() -> str:
    """Return what tells the parts their release, which charts ask for."""
    major, minor, _ = _numbers()
    said = {"gitVersion": release(), "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    return " ".join(
        f"-X k8s.io/component-base/version.{key}={value}" for key, value in said.items()
    )


if __name__ == "__main__":
    os.nice(10)  # built beside the tests
    print(folder())
