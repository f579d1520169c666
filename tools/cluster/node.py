"""The first process of the cluster's own namespaces: starts its parts, reaps what is orphaned.

When it ends the kernel ends all that ran in them, and their networks and mounts are gone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import parts
from images import write_pause
from layout import BRIDGE, NODE, NODE_IP, Layout

Started = subprocess.Popen[bytes]
#: Folders of the machine that parts write to and cannot be told to leave alone.
HIDDEN = ("/run/containerd", "/var/lib/cni", "/var/lib/kubelet", "/var/log")
#: Seconds until each part must answer.
PATIENCE = 60.0
GROUPS = Path("/sys/fs/cgroup")
#: What a kubelet and containerd put limits on; all of version 1.
CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids")


def main(home: str, short: str) -> None:
    """Bring the node up, say so in a file, and stay until a part ends or SIGTERM comes."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    place = Layout(Path(home), Path(short))
    _hide()
    _begin_groups()
    _begin_network()
    running = _start(place)
    place.ready.touch()
    _stay(running)


def _hide() -> None:
    for folder in HIDDEN:
        Path(folder).mkdir(parents=True, exist_ok=True)
        _run("mount", "-t", "tmpfs", "tmpfs", folder)


def _begin_groups() -> None:
    """Mount control groups where nobody has: the first process of a bare machine may not."""
    mounts = Path("/proc/mounts").read_text().splitlines()
    if any(mount.split()[2].startswith("cgroup") for mount in mounts):
        return
    _run("mount", "-t", "tmpfs", "tmpfs", str(GROUPS))
    for name in CONTROLLERS:
        (GROUPS / name).mkdir()
        _run("mount", "-t", "cgroup", "-o", name, "cgroup", str(GROUPS / name))


def _begin_network() -> None:
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "link", "add", BRIDGE, "type", "bridge")
    _run("ip", "address", "add", f"{NODE_IP}/24", "dev", BRIDGE)
    _run("ip", "link", "set", BRIDGE, "up")
    # Kubernetes asks for a way out when it chooses its address, though nothing takes it.
    _run("ip", "route", "add", "default", "dev", BRIDGE)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def _start(place: Layout) -> dict[str, Started]:
    running: dict[str, Started] = {}
    kubectl = [str(place.programs / "kubectl"), f"--kubeconfig={place.kubeconfig}"]
    ready: dict[str, Callable[[], bool]] = {
        "containerd": place.runtime.exists,
        "kube-apiserver": lambda: _works(*kubectl, "get", "--raw", "/readyz"),
        "kubelet": lambda: _works(
            *kubectl, "wait", "--for=condition=Ready", f"node/{NODE}", "--timeout=1s"
        ),
    }
    for part, command in parts.commands(place).items():
        running[part] = _spawn(command, place.log(part))
        _await(part, ready.get(part, lambda: True))
        if part == "containerd":
            _run(*parts.images(place), "import", str(write_pause(place)))
    return running


def _spawn(command: list[str], log: Path) -> Started:
    with log.open("wb") as output:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)


def _await(part: str, ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not ready():
        if time.monotonic() > deadline:
            sys.exit(f"{part} was not ready in {PATIENCE:.0f} s; see its log")
        time.sleep(0.1)


def _stay(running: dict[str, Started]) -> None:
    """Wait for ever, also for the orphans of containers; ends with the first part that does."""
    parts_by_pid = {started.pid: part for part, started in running.items()}
    while True:
        for part, started in running.items():
            if started.poll() is not None:
                sys.exit(f"{part} ended with {started.returncode}; see its log")
        pid, status = os.wait()
        if pid in parts_by_pid:
            sys.exit(f"{parts_by_pid[pid]} ended with {os.waitstatus_to_exitcode(status)}")


def _works(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _run(*command: str) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        sys.exit(f"{' '.join(command)} failed: {result.stderr.strip()}")


if __name__ == "__main__":
    main(*sys.argv[1:])
