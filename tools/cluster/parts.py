"""What each part of the cluster reads, and the command that starts it."""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
from pathlib import Path

from layout import (
    API,
    BRIDGE,
    DOMAIN,
    NODE,
    NODE_IP,
    PAUSE,
    POD_RANGE,
    SERVICE_RANGE,
    Layout,
)


def write(place: Layout, programs: Path) -> None:
    """Write everything that the parts read; what an earlier cluster left is removed."""
    shutil.rmtree(place.home, ignore_errors=True)
    shutil.rmtree(place.short, ignore_errors=True)
    for folder in (place.certificates, place.home / "log", place.home / "net.d", place.short):
        folder.mkdir(parents=True)
    place.programs.symlink_to(programs)
    _write_keys(place)
    _write_json(place.home / "net.d" / "10-angzarr.conflist", _network(place))
    _write_json(place.home / "kubelet.json", _kubelet(place))
    (place.home / "containerd.toml").write_text(_containerd(place))
    (place.home / "Corefile").write_text(_dns(place))
    (place.home / "resolv.conf").write_text("")


def _write_keys(place: Layout) -> None:
    token = secrets.token_urlsafe(32)
    (place.certificates / "tokens.csv").write_text(f"{token},admin,admin,system:masters\n")
    key = place.certificates / "accounts.key"
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
    _write_json(place.kubeconfig, _kubeconfig(place, token))
    for path in (place.kubeconfig, place.certificates / "tokens.csv", key):
        path.chmod(0o600)


def _kubeconfig(place: Layout, token: str) -> dict[str, object]:
    authority = str(place.certificates / "apiserver.crt")
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "test", "cluster": {"server": API, "certificate-authority": authority}}
        ],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        "current-context": "test",
    }


def _network(place: Layout) -> dict[str, object]:
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": POD_RANGE}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": str(place.short / "addresses"),
    }
    bridge = {
        "type": "bridge",
        "bridge": BRIDGE,
        "isGateway": True,
        "hairpinMode": True,
        "ipam": addresses,
    }
    return {"cniVersion": "0.4.0", "name": "angzarr", "plugins": [bridge]}


def _kubelet(place: Layout) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": NODE_IP,
        "readOnlyPort": 0,
        # Nobody but this machine is in its network.
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "failCgroupV1": False,
        "containerRuntimeEndpoint": f"unix://{place.runtime}",
        "clusterDNS": [NODE_IP],
        "clusterDomain": DOMAIN,
        "resolvConf": str(place.home / "resolv.conf"),
        # The machine's disk may be nearly full; images are not fetched, so none may be removed.
        "evictionHard": {
            "memory.available": "50Mi",
            "nodefs.available": "0%",
            "imagefs.available": "0%",
        },
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "shutdownGracePeriod": "0s",
    }


def _containerd(place: Layout) -> str:
    return f"""\
version = 2
root = "{place.home}/containerd"
state = "{place.short}/containerd"
[grpc]
  address = "{place.runtime}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/usr/lib/cni"
  conf_dir = "{place.home}/net.d"
[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "overlayfs"
"""


def _dns(place: Layout) -> str:
    return f"""\
.:53 {{
    bind {NODE_IP}
    errors
    kubernetes {DOMAIN} {{
        kubeconfig {place.kubeconfig} test
    }}
}}
"""


def commands(place: Layout) -> dict[str, list[str]]:
    """Return the command of each part; the API server is asked by those behind it."""
    configured = f"--kubeconfig={place.kubeconfig}"
    alone = ["--leader-elect=false", "--bind-address=127.0.0.1"]
    key = f"{place.certificates}/accounts.key"
    started = {
        "containerd": ["-c", f"{place.home}/containerd.toml"],
        "etcd": [f"{place.home}/etcd"],
        "kube-apiserver": [
            "--etcd-servers=http://127.0.0.1:2379",
            "--bind-address=127.0.0.1",
            f"--advertise-address={NODE_IP}",
            f"--cert-dir={place.certificates}",
            f"--token-auth-file={place.certificates}/tokens.csv",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-signing-key-file={key}",
            f"--service-account-key-file={key}",
            f"--service-cluster-ip-range={SERVICE_RANGE}",
            "--kubelet-preferred-address-types=InternalIP",
        ],
        "kube-controller-manager": [
            configured,
            *alone,
            f"--service-account-private-key-file={key}",
            f"--root-ca-file={place.certificates}/apiserver.crt",
        ],
        "kube-scheduler": [configured, *alone],
        "kube-proxy": [
            configured,
            f"--hostname-override={NODE}",
            "--proxy-mode=iptables",
            "--metrics-bind-address=127.0.0.1",
            "--healthz-bind-address=127.0.0.1",
            f"--cluster-cidr={POD_RANGE}",
            # These are the machine's, which this network does not have.
            "--conntrack-max-per-core=0",
            "--conntrack-tcp-timeout-established=0s",
            "--conntrack-tcp-timeout-close-wait=0s",
        ],
        "coredns": ["-conf", f"{place.home}/Corefile"],
        "kubelet": [
            configured,
            f"--config={place.home}/kubelet.json",
            f"--root-dir={place.short}/kubelet",
            f"--cert-dir={place.certificates}",
            f"--hostname-override={NODE}",
            f"--node-ip={NODE_IP}",
        ],
    }
    return {part: [_program(place, part), *rest] for part, rest in started.items()}


def images(place: Layout) -> list[str]:
    """Return the command that asks about the node's images, or gives it some."""
    return ["ctr", "--address", str(place.runtime), "--namespace", "k8s.io", "images"]


def _program(place: Layout, part: str) -> str:
    return shutil.which(part) or part if part == "containerd" else str(place.programs / part)


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2))
