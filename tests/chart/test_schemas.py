"""Every rendering is what Kubernetes, KEDA and the Prometheus operator take, to the last field."""

from __future__ import annotations

import copy
import re
import subprocess
from pathlib import Path

import pytest

from chart.rendering import CHART, KUBERNETES, SETS, rendered, tools, values_of
from chart.schemas import minors, problems


def test_at_least_twelve_sets_are_checked():
    assert len(SETS) >= 12


@pytest.mark.parametrize("name", SETS)
def test_helm_has_nothing_to_say_against_a_set(name):
    command = [tools()["helm"], "lint", "--strict", str(CHART), "--kube-version", KUBERNETES]
    ended = subprocess.run(
        [*command, "--values", str(CHART / "ci" / f"{name}.yaml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "[WARNING]" not in ended.stdout


@pytest.mark.parametrize("version", [-3, -2, -1])
@pytest.mark.parametrize("name", SETS)
def test_every_object_fits_its_schema_strictly(name, version):
    objects = rendered(name).objects
    assert objects
    assert [line for one in objects for line in problems(one, minors()[version])] == []


def test_the_last_three_minors_are_three():
    numbers = [int(version.split(".")[1]) for version in minors()]
    assert numbers == list(range(numbers[0], numbers[0] + 3))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("minimal", "Deployment"),
        ("minimal", "PodDisruptionBudget"),
        ("spool", "StatefulSet"),
        ("keda-redis", "ScaledObject"),
        ("keda-rabbitmq", "TriggerAuthentication"),
        ("monitoring", "PodMonitor"),
        ("monitoring", "PrometheusRule"),
        ("service-monitor", "ServiceMonitor"),
    ],
)
def test_a_field_that_nobody_knows_is_found(name, kind):
    found = copy.deepcopy(rendered(name).all(kind)[0])
    found["spec"]["repplicas"] = 3
    assert any("repplicas" in line for line in problems(found, minors()[-1]))


def test_a_field_within_a_field_is_found_too():
    found = copy.deepcopy(rendered("keda-redis").one("ScaledObject", "worker-default"))
    found["spec"]["advanced"]["scalingModifiers"]["formular"] = "x"
    assert any("formular" in line for line in problems(found, minors()[-1]))


def test_a_kind_that_does_not_exist_is_found():
    assert problems({"apiVersion": "apps/v1beta1", "kind": "Deployment"}, minors()[-1])
    assert problems({"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledPod"}, minors()[-1])


#: Type of a trigger → the file of KEDA that reads its parameters.
_SCALERS = {
    "redis": "redis_scaler.go",
    "redis-sentinel": "redis_scaler.go",
    "rabbitmq": "rabbitmq_scaler.go",
    "aws-sqs-queue": "aws_sqs_queue_scaler.go",
    "kafka": "kafka_scaler.go",
}


def parameters(kind: str, source: str) -> set[str]:
    """Return what KEDA's code reads of a trigger's metadata, or of its authentication."""
    text = (Path(tools()["keda"]) / "pkg" / "scalers" / _SCALERS[kind]).read_text()
    tags = re.findall(r'keda:"name=([^,"]+),([^"]*)"', text)
    return {name for names, rest in tags if source in rest for name in names.split(";")}


@pytest.mark.parametrize("name", [one for one in SETS if one.startswith("keda-")])
def test_every_parameter_of_a_trigger_is_one_that_keda_reads(name):
    """KEDA's schema takes any parameter and its code ignores the unknown: so its code is asked."""
    chart = rendered(name)
    triggers = [one for found in chart.all("ScaledObject") for one in found["spec"]["triggers"]]
    ours = [one for one in triggers if one["type"] in _SCALERS]
    assert ours
    for one in ours:
        assert set(one["metadata"]) <= parameters(one["type"], "triggerMetadata")
    kinds = {one["type"] for one in ours if "authenticationRef" in one}
    for kind in kinds:
        for found in chart.all("TriggerAuthentication"):
            given = {ref["parameter"] for ref in found["spec"].get("secretTargetRef", [])}
            assert given <= parameters(kind, "authParams")


def test_values_of_every_set_say_what_they_are_for():
    for name in SETS:
        assert (CHART / "ci" / f"{name}.yaml").read_text().startswith("# "), name
        assert values_of(name)["app"]
