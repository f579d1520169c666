"""What the API server checks besides its schemas, as far as the chart has it in hand."""

from __future__ import annotations

import re
from collections.abc import Iterator

from chart.rendering import Object, Rendered, containers

_SERVICE = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


def broken_rules(chart: Rendered) -> list[str]:
    """Return what is wrong in a release, each with the object's name."""
    found = [f"{one['kind']}/{one['metadata']['name']}: {line}"
             for one in chart.objects for line in _of_object(one)]  # fmt: skip
    found += [f"{name}: {line}" for name, pod in chart.pod_templates() for line in _of_pod(pod)]
    names = [(one["kind"], one["metadata"]["name"]) for one in chart.objects]
    return found + [f"{name} is there twice" for name in set(names) if names.count(name) > 1]


def _of_object(one: Object) -> Iterator[str]:
    fits = _SERVICE if one["kind"] == "Service" else _NAME
    if not fits.fullmatch(one["metadata"]["name"]):
        yield "no name"
    yield from _labels(one["metadata"])
    spec = one.get("spec", {})
    if one["kind"] == "Deployment":
        if spec["minReadySeconds"] >= spec["progressDeadlineSeconds"]:
            yield "is ready too late"
        moves = spec["strategy"].get("rollingUpdate", {"maxSurge": 1})
        if all(str(moves[key]).lstrip("0") in {"", "%"} for key in moves):
            yield "no pod can be replaced"
    if one["kind"] == "HorizontalPodAutoscaler" and spec["minReplicas"] > spec["maxReplicas"]:
        yield "no number of pods"
    if one["kind"] == "ScaledObject":
        if spec["minReplicaCount"] > spec["maxReplicaCount"]:
            yield "no number of pods"
        names = [each["name"] for each in spec["triggers"] if "name" in each]
        if len(set(names)) < len(names) or not all(map(_IDENTIFIER.fullmatch, names)):
            yield "a trigger's name"


def _labels(metadata: Object) -> Iterator[str]:
    for value in metadata.get("labels", {}).values():
        if not _LABEL.fullmatch(value):
            yield f"the label {value!r}"


def _of_pod(pod: Object) -> Iterator[str]:
    yield from _labels(pod["metadata"])
    for one in containers(pod):
        names = [variable["name"] for variable in one["env"]]
        if len(set(names)) < len(names):
            yield "a variable twice"
        paths = [mount["mountPath"].rstrip("/") for mount in one["volumeMounts"]]
        if len(set(paths)) < len(paths):
            yield "a path twice"
        pause = one.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        if pause and pause > pod["spec"]["terminationGracePeriodSeconds"]:
            yield "a pause longer than the grace"
        for probe in ("livenessProbe", "startupProbe"):
            if one.get(probe, {}).get("successThreshold", 1) != 1:
                yield "a probe"
