"""Where everything of the cluster lies and which addresses it has, inside its own network."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from server import CHECKOUT

#: Nothing leaves the cluster's own network, so these may be used elsewhere too. The node is the
#: gateway of its pods.
NODE_IP: Final = "10.244.0.1"
POD_RANGE: Final = "10.244.0.0/24"
BRIDGE: Final = "pods"
SERVICE_RANGE: Final = "10.96.0.0/16"
NODE: Final = "node-1"
DOMAIN: Final = "cluster.local"
API: Final = "https://127.0.0.1:6443"
PAUSE: Final = "localhost/pause:1"


@dataclass(frozen=True)
class Layout:
    """The files of one cluster. *short* is where sockets are: their paths have a limit of 107."""

    home: Path
    short: Path

    @property
    def programs(self) -> Path:
        """A link to the parts, which are built elsewhere."""
        return self.home / "programs"

    @property
    def commands(self) -> Path:
        """The commands of people, as they are called from the machine; they outlive a cluster."""
        return self.home.with_name("cluster-commands")

    @property
    def kubeconfig(self) -> Path:
        """What kubectl and helm are told by."""
        return self.home / "kubeconfig"

    @property
    def runtime(self) -> Path:
        """The socket of containerd."""
        return self.short / "containerd.sock"

    @property
    def node(self) -> Path:
        """Which process the node is."""
        return self.home / "node.json"

    @property
    def ready(self) -> Path:
        """There once the node is ready."""
        return self.home / "ready"

    @property
    def certificates(self) -> Path:
        """Keys, tokens, and what the API server signed for itself."""
        return self.home / "pki"

    def log(self, part: str) -> Path:
        """Return where *part* says what it does."""
        return self.home / "log" / f"{part}.log"


def layout() -> Layout:
    """Return where the cluster of this checkout lies."""
    mark = hashlib.sha256(str(CHECKOUT).encode()).hexdigest()[:8]
    home = Path(os.environ.get("ANGZARR_CLUSTER_HOME") or CHECKOUT / "build" / "cluster")
    return Layout(home, Path("/run") / f"angzarr-{mark}")
