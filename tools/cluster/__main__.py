"""A real Kubernetes for the tests: one node in namespaces of its own, on this machine alone.

`python3 tools/cluster --help` lists the commands. Uses the standard library alone, and needs root
on a Debian-like machine with Go; nothing of it is reachable from outside, nor from other
processes of this machine but by `run`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

SERVERS = Path(__file__).resolve().parents[1] / "servers"
sys.path.insert(0, str(SERVERS))

import binary
import commands
import packages
import parts
import processes
import stand_ins
from layout import Layout, layout
from server import CannotStart

#: Debian's package by a program that is in it; the plug-ins of its network lie apart.
PACKAGES = {
    "containerd": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "openssl": "openssl",
}
NAMESPACES = ("--mount", "--net", "--pid")
#: What a kubelet sets for the whole machine, and is set back.
KERNEL = ("vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops")
#: Seconds until the node must be ready.
PATIENCE = 120.0
#: Leads to the home of the machine's one cluster.
CURRENT = Path("/run/angzarr-cluster")


def main() -> int:
    """Do what the command line asks and return the exit code."""
    arguments = _parser().parse_args()
    try:
        return int(arguments.action(arguments))
    except CannotStart as problem:
        print(f"cluster: {problem}", file=sys.stderr)
        return 1


def _build(_: argparse.Namespace) -> int:
    began = time.monotonic()
    print(f"  Kubernetes {binary.release()}: {binary.folder()}, {time.monotonic() - began:.0f} s")
    return 0


def _up(_: argparse.Namespace) -> int:
    place = layout()
    if node := _running(place):
        _await(place, node)
        print("  the cluster is up")
        return 0
    _install()
    _refuse_another(place)
    programs = binary.folder()
    began = time.monotonic()
    _drop_groups()
    _restore_kernel(place)
    parts.write(place, programs)
    _save_kernel(place)
    _await(place, _spawn(place))
    print(f"  Kubernetes {binary.release()}: ready in {time.monotonic() - began:.1f} s")
    return 0


def _commands(_: argparse.Namespace) -> int:
    place = layout()
    commands.write(place)
    print(place.commands)
    return 0


def _spawn(place: Layout) -> processes.Process:
    inside = [sys.executable, Path(__file__).with_name("node.py"), place.home, place.short]
    started = processes.spawn(
        ["unshare", *NAMESPACES, "--fork", "--kill-child", "--mount-proc", *inside],
        log=place.log("node"),
        env={"PYTHONPATH": str(SERVERS)},
    )
    place.node.write_text(json.dumps(asdict(started)))
    CURRENT.unlink(missing_ok=True)
    CURRENT.symlink_to(place.home)
    return started


def _refuse_another(place: Layout) -> None:
    """A kubelet removes control groups of pods that it does not know: those of another, too."""
    other = Layout(CURRENT.resolve(), place.short)
    if other.home != place.home.resolve() and _running(other):
        raise CannotStart(f"another cluster is up, of {other.home}: end it first, by `down` there")


def _install() -> None:
    if os.geteuid() != 0:
        raise CannotStart("only root can make the namespaces of a cluster")
    for program, package in PACKAGES.items():
        packages.ensure(program, package)
    packages.ensure("bridge", "containernetworking-plugins", "/usr/lib/cni")


def _await(place: Layout, started: processes.Process) -> None:
    deadline = time.monotonic() + PATIENCE
    while not place.ready.exists():
        if not processes.alive(started):
            said = place.log("node").read_text().strip().splitlines()
            raise CannotStart(said[-1] if said else "the node ended while it was starting")
        if time.monotonic() > deadline:
            processes.kill([started])
            raise CannotStart(f"the node was not ready in {PATIENCE:.0f} s; see {place.home}/log")
        time.sleep(0.1)


def _down(_: argparse.Namespace) -> int:
    place = layout()
    node = _running(place)
    if node is not None:
        processes.stop([node], patience=10)
    _restore_kernel(place)
    _drop_groups()
    # What it said stays, to be read; its images are gigabytes.
    for folder in (place.short, place.home / "containerd", place.home / "etcd"):
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def _running(place: Layout) -> processes.Process | None:
    try:
        node = processes.Process(**json.loads(place.node.read_text()))
    except FileNotFoundError:
        return None
    return node if processes.alive(node) else None


def _save_kernel(place: Layout) -> None:
    values = {name: Path("/proc/sys", name).read_text().strip() for name in KERNEL}
    (place.home / "kernel.json").write_text(json.dumps(values))


def _restore_kernel(place: Layout) -> None:
    """Set back what a cluster changed, also one that was killed."""
    saved = place.home / "kernel.json"
    if saved.exists():
        for name, value in json.loads(saved.read_text()).items():
            Path("/proc/sys", name).write_text(value)
        saved.unlink()


def _drop_groups() -> None:
    """Remove the control groups that containers left; one in use is left alone."""
    groups = Path("/sys/fs/cgroup")
    for top in (groups / "kubepods", *groups.glob("*/kubepods")):
        for folder, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):
                Path(folder).rmdir()


def _first_process(place: Layout) -> int:
    """Return the first process of the namespaces, as the machine numbers it."""
    node = _running(place)
    if node is None:
        raise CannotStart("no cluster is up here: python3 tools/cluster up")
    return processes.family(node)[1].pid


def _run(arguments: argparse.Namespace) -> int:
    """Become a command in the cluster's network, which is told where the cluster is."""
    place = layout()
    inside = ["nsenter", "--target", str(_first_process(place)), "--net", "--"]
    environment = {**os.environ, "KUBECONFIG": str(place.kubeconfig)}
    os.execvpe(inside[0], [*inside, *arguments.command], environment)  # noqa: S606 - that is meant


def _servers(_: argparse.Namespace) -> int:
    """Give the node what stands in for the images of servers, unless it has it."""
    listed = subprocess.run(
        [*parts.images(layout()), "list", "-q"], capture_output=True, text=True, check=False
    )
    if set(stand_ins.SERVERS) <= set(listed.stdout.split()):
        return 0
    archive = layout().home / "stand-ins.tar"
    stand_ins.write(archive)
    code = _load(argparse.Namespace(archive=archive))
    archive.unlink()
    return code


def _load(arguments: argparse.Namespace) -> int:
    """Give the node the images of an archive, as `docker save` writes them."""
    place = layout()
    return subprocess.run(
        [*parts.images(place), "import", arguments.archive], check=False
    ).returncode


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 tools/cluster", description=__doc__)
    known = parser.add_subparsers(required=True)
    for name, action, meaning in (
        ("build", _build, "build Kubernetes, unless that was done"),
        ("commands", _commands, "write kubectl, helm, docker and kind, and print where"),
        ("up", _up, "start the cluster, unless it is up"),
        ("servers", _servers, "give it stand-ins for the images of servers"),
        ("down", _down, "stop it and remove what it left"),
    ):
        known.add_parser(name, help=meaning).set_defaults(action=action)
    load = known.add_parser("load", help=(_load.__doc__ or "").lower())
    load.add_argument("archive", type=Path)
    load.set_defaults(action=_load)
    run = known.add_parser("run", help="run a command in the cluster's network")
    run.add_argument("command", nargs=argparse.REMAINDER)
    run.set_defaults(action=_run)
    return parser


if __name__ == "__main__":
    sys.exit(main())
