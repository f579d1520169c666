"""Names and labels: whatever a release, a pool or a Secret is called, they stay text and fit."""

from __future__ import annotations

import re

import pytest

from chart.rendering import SETS, Rendered, changed, render, rendered, values_of
from chart.schemas import minors, problems

#: What YAML takes for a number, a truth or nothing unless it is quoted.
WORDS = ["123", "1e3", "0x1f", "true", "no", "null"]


def wrong(chart: Rendered) -> list[str]:
    return [line for one in chart.objects for line in problems(one, minors()[-1])]


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("name", ["many-pools", "spool"])
def test_a_release_and_a_pool_may_be_called_what_yaml_reads_as_something_else(name, word):
    values = changed(
        values_of(name),
        fullnameOverride="shop",
        nameOverride=word,
        pools=[{"name": word, "queues": [word]}],
        spool__storageClassName=word,
        defaults__priorityClassName=word,
        image__tag=word,
        secretEnvFrom=[{"name": word}],
        extraEnv=[{"name": "N", "value": word}],
    )
    values["secretEnv"]["NO"] = {"name": word, "key": word}
    chart = render(values, release=word, namespace=word)
    assert wrong(chart) == []
    for one in chart.objects:
        assert one["metadata"]["namespace"] == word
        assert one["metadata"]["labels"]["app.kubernetes.io/instance"] == word


@pytest.mark.parametrize("word", WORDS)
def test_an_account_and_a_class_may_be_called_so_too(word):
    values = changed(
        values_of("network-policy"),
        serviceAccount={"create": False, "name": word},
        dashboard__ingress__className=word,
    )
    assert wrong(render(values)) == []
    assert wrong(render(changed(values_of("minimal"), fullnameOverride=word))) == []


@pytest.mark.parametrize(
    ("name", "kind", "part"),
    [
        ("monitoring", "PodMonitor", ""),
        ("monitoring", "PrometheusRule", ""),
        ("monitoring", "ConfigMap", "-grafana"),
        ("service-monitor", "ServiceMonitor", ""),
    ],
)
def test_a_label_of_the_charts_own_stays_and_stands_once(name, kind, part):
    """A selector of a Prometheus is often by a label that the chart sets itself."""
    labels = {"app.kubernetes.io/part-of": "kube-prometheus", "team": "shop"}
    parts = ("podMonitor", "serviceMonitor", "prometheusRule", "grafanaDashboard")
    values = changed(values_of(name), **{f"monitoring__{part}__labels": labels for part in parts})
    told = render(values).one(kind, part)["metadata"]["labels"]
    assert (told["app.kubernetes.io/part-of"], told["team"]) == ("angzarr", "shop")


def test_an_annotation_of_the_charts_own_stays_and_stands_once():
    values = changed(values_of("minimal"), defaults__podAnnotations={"checksum/config": "x"})
    for maker in render(values).workloads():
        told = maker["spec"]["template"]["metadata"]["annotations"]
        assert re.fullmatch("[0-9a-f]{64}", told["checksum/config"])


@pytest.mark.parametrize("name", SETS)
def test_rendering_twice_gives_the_same(name):
    """Whoever compares renderings, as Argo CD does, would else see a difference for ever."""
    assert render(values_of(name)).objects == rendered(name).objects


def test_labels_and_annotations_of_pods_are_those_of_the_hooks_too():
    """Rights by a pod's label, as on Azure, and a mesh's annotations are needed there as well."""
    values = changed(
        values_of("minimal"),
        defaults={"podLabels": {"azure.workload.identity/use": "true"},
                  "podAnnotations": {"example.com/mesh": "in"}},
        migrations={"podAnnotations": {"example.com/mesh": "out"}, "podLabels": {"mesh": "out"}},
    )  # fmt: skip
    pods = dict(render(values).pod_templates())
    for pod in pods.values():
        assert pod["metadata"]["labels"]["azure.workload.identity/use"] == "true"
    told = {name: pod["metadata"]["annotations"]["example.com/mesh"] for name, pod in pods.items()}
    assert told.pop("t-angzarr-migrations") == "out"
    assert set(told.values()) == {"in"}
    labels = pods["t-angzarr-migrations"]["metadata"]["labels"]
    assert (labels["mesh"], labels["app.kubernetes.io/component"]) == ("out", "migrations")
