"""Every pod keeps the restricted profile, and the check would see one that does not."""

from __future__ import annotations

import copy

import pytest

from chart.pod_security import OURS, RESTRICTED, broken
from chart.rendering import SETS, rendered


@pytest.mark.parametrize("name", SETS)
def test_every_pod_keeps_the_restricted_profile(name):
    pods = rendered(name).pod_templates()
    assert pods
    assert {maker: broken(pod) for maker, pod in pods if broken(pod)} == {}


def _pod(change):
    pod = copy.deepcopy(dict(rendered("minimal").pod_templates())["t-angzarr-worker-default"])
    change(pod["spec"], pod["spec"]["containers"][0])
    return pod


def _set(where, /, **said):
    where.update(said)


#: Rule → how a pod breaks it, and, as far as one can, it alone.
VIOLATIONS = {
    "HostProcess": lambda spec, _: _set(
        spec["securityContext"], windowsOptions={"hostProcess": True}
    ),
    "Host Namespaces": lambda spec, _: _set(spec, hostPID=True),
    "Privileged Containers": lambda _, one: _set(one["securityContext"], privileged=True),
    "HostPath Volumes": lambda spec, _: spec["volumes"].append(
        {"name": "x", "hostPath": {"path": "/"}}
    ),
    "Host Ports": lambda _, one: one["ports"].append({"containerPort": 1, "hostPort": 1}),
    "Host Probes / Lifecycle Hooks": lambda _, one: _set(
        one["livenessProbe"]["httpGet"], host="10.0.0.1"
    ),
    "AppArmor": lambda spec, _: _set(
        spec["securityContext"], appArmorProfile={"type": "Unconfined"}
    ),
    "SELinux": lambda _, one: _set(one["securityContext"], seLinuxOptions={"type": "spc_t"}),
    "/proc Mount Type": lambda _, one: _set(one["securityContext"], procMount="Unmasked"),
    "Sysctls": lambda spec, _: _set(
        spec["securityContext"], sysctls=[{"name": "kernel.msgmax", "value": "1"}]
    ),
    "Volume Types": lambda spec, _: spec["volumes"].append({"name": "x", "nfs": {"path": "/"}}),
    "Privilege Escalation": lambda _, one: one["securityContext"].pop("allowPrivilegeEscalation"),
    "Running as Non-root": lambda spec, _: spec["securityContext"].pop("runAsNonRoot"),
    "Running as Non-root user": lambda _, one: _set(one["securityContext"], runAsUser=0),
    "Seccomp": lambda spec, _: spec["securityContext"].pop("seccompProfile"),
    "Capabilities": lambda _, one: one["securityContext"].pop("capabilities"),
    "read-only root": lambda _, one: one["securityContext"].pop("readOnlyRootFilesystem"),
    "no token of the API server": lambda spec, _: spec.pop("automountServiceAccountToken"),
    "no links to services": lambda spec, _: spec.pop("enableServiceLinks"),
    "no capability at all": lambda _, one: _set(
        one["securityContext"], capabilities={"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}
    ),
    "bounded memory": lambda _, one: one["resources"].pop("limits"),
    "bounded /tmp": lambda spec, _: spec["volumes"][0]["emptyDir"].pop("sizeLimit"),
}


@pytest.mark.parametrize("rule", [*RESTRICTED, *OURS])
def test_a_pod_that_breaks_a_rule_is_found(rule):
    assert broken(_pod(lambda *_: None)) == []
    assert rule in broken(_pod(VIOLATIONS[rule]))


def test_a_rule_is_broken_by_an_init_container_too():
    def change(spec, _):
        spec["initContainers"][0]["securityContext"]["privileged"] = True

    assert "Privileged Containers" in broken(_pod(change))
