"""The restricted profile of Pod Security, rule by rule, and what this project asks besides.

https://kubernetes.io/docs/concepts/security/pod-security-standards/
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from chart.rendering import Object, containers

_VOLUMES: Final = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim",
    "projected", "secret",
}  # fmt: skip
_SYSCTLS: Final = {
    "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range", "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
}  # fmt: skip
_SELINUX: Final = {
    "", "container_t", "container_init_t", "container_kvm_t", "container_engine_t",
}  # fmt: skip


def _contexts(pod: Object) -> Iterator[dict[str, Any]]:
    yield pod["spec"].get("securityContext", {})
    for one in containers(pod):
        yield one.get("securityContext", {})


def _each(pod: Object) -> list[dict[str, Any]]:
    """Return the contexts of containers, with what they take from the pod's."""
    own = pod["spec"].get("securityContext", {})
    return [own | one.get("securityContext", {}) for one in containers(pod)]


def _ports(pod: Object) -> Iterator[int]:
    for one in containers(pod):
        yield from (port.get("hostPort", 0) for port in one.get("ports", []))


def _handlers(pod: Object) -> Iterator[dict[str, Any]]:
    for one in containers(pod):
        yield from (one[key] for key in one if key.endswith("Probe"))
        yield from one.get("lifecycle", {}).values()


def _added(pod: Object) -> set[str]:
    return {name for one in _contexts(pod) for name in one.get("capabilities", {}).get("add", [])}


#: Rule of the profile → whether a pod keeps it. The first nine are also those of the baseline.
RESTRICTED: Final[dict[str, Callable[[Object], bool]]] = {
    "HostProcess": lambda pod: (
        not any(one.get("windowsOptions", {}).get("hostProcess") for one in _contexts(pod))
    ),
    "Host Namespaces": lambda pod: (
        not any(pod["spec"].get(key) for key in ("hostNetwork", "hostPID", "hostIPC"))
    ),
    "Privileged Containers": lambda pod: not any(one.get("privileged") for one in _contexts(pod)),
    "HostPath Volumes": lambda pod: (
        not any("hostPath" in one for one in pod["spec"].get("volumes", []))
    ),
    "Host Ports": lambda pod: not any(_ports(pod)),
    "Host Probes / Lifecycle Hooks": lambda pod: (
        not any(
            handler.get(kind, {}).get("host")
            for handler in _handlers(pod)
            for kind in ("httpGet", "tcpSocket")
        )
    ),
    "AppArmor": lambda pod: all(
        one.get("appArmorProfile", {}).get("type", "RuntimeDefault")
        in {"RuntimeDefault", "Localhost"}
        for one in _contexts(pod)
    ),
    "SELinux": lambda pod: all(
        one.get("seLinuxOptions", {}).get("type", "") in _SELINUX
        and not one.get("seLinuxOptions", {}).get("user")
        and not one.get("seLinuxOptions", {}).get("role")
        for one in _contexts(pod)
    ),
    "/proc Mount Type": lambda pod: all(
        one.get("procMount", "Default") == "Default" for one in _contexts(pod)
    ),
    "Sysctls": lambda pod: all(
        sysctl["name"] in _SYSCTLS for one in _contexts(pod) for sysctl in one.get("sysctls", [])
    ),
    "Volume Types": lambda pod: all(
        set(one) - {"name"} <= _VOLUMES for one in pod["spec"].get("volumes", [])
    ),
    "Privilege Escalation": lambda pod: all(
        one.get("securityContext", {}).get("allowPrivilegeEscalation") is False
        for one in containers(pod)
    ),
    "Running as Non-root": lambda pod: all(one.get("runAsNonRoot") is True for one in _each(pod)),
    "Running as Non-root user": lambda pod: all(one.get("runAsUser") != 0 for one in _each(pod)),
    "Seccomp": lambda pod: all(
        one.get("seccompProfile", {}).get("type") in {"RuntimeDefault", "Localhost"}
        for one in _each(pod)
    ),
    "Capabilities": lambda pod: (
        all(
            "ALL" in one.get("securityContext", {}).get("capabilities", {}).get("drop", [])
            for one in containers(pod)
        )
        and _added(pod) <= {"NET_BIND_SERVICE"}
    ),
}
#: What we ask besides.
OURS: Final[dict[str, Callable[[Object], bool]]] = {
    "read-only root": lambda pod: all(
        one.get("securityContext", {}).get("readOnlyRootFilesystem") is True
        for one in containers(pod)
    ),
    "no token of the API server": lambda pod: (
        pod["spec"].get("automountServiceAccountToken") is False
    ),
    "no links to services": lambda pod: pod["spec"].get("enableServiceLinks") is False,
    "no capability at all": lambda pod: not _added(pod),
    "bounded memory": lambda pod: all(
        one.get("resources", {}).get("limits", {}).get("memory") for one in containers(pod)
    ),
    "bounded /tmp": lambda pod: all(
        "sizeLimit" in one["emptyDir"]
        for one in pod["spec"].get("volumes", [])
        if "emptyDir" in one
    ),
}


def broken(pod: Object) -> list[str]:
    """Return the names of the rules that a pod breaks."""
    return [name for name, keeps in (RESTRICTED | OURS).items() if not keeps(pod)]
