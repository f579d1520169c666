"""Strict validation: what no schema of Kubernetes or of a CRD knows is an error."""

from __future__ import annotations

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from chart.rendering import Object, tools


@cache
def minors() -> list[str]:
    """Return the last three minor versions of Kubernetes that there are schemas of."""
    folders = Path(tools()["kubernetes"]).glob("v*-local-strict")
    found = sorted(
        (folder.name.split("-")[0].lstrip("v") for folder in folders),
        key=lambda version: [int(part) for part in version.split(".")],
    )
    return found[-3:]


def problems(found: Object, version: str) -> list[str]:
    """Return what is wrong with an object, each with its path; an unknown kind is wrong too."""
    group = found["apiVersion"].partition("/")[0]
    if group in {"keda.sh", "monitoring.coreos.com"}:
        validator = _crd(found["apiVersion"], found["kind"])
    else:
        validator = _kubernetes(found["apiVersion"], found["kind"], version)
    if validator is None:
        return [f"{found['apiVersion']} has no {found['kind']} in Kubernetes {version}"]
    name = f"{found['kind']}/{found.get('metadata', {}).get('name')}"
    return [
        f"{name}: {'.'.join(map(str, error.absolute_path))}: {error.message[:300]}"
        for error in validator.iter_errors(found)
    ]


@cache
def _kubernetes(api_version: str, kind: str, version: str) -> Draft202012Validator | None:
    group, _, number = api_version.rpartition("/")
    name = "-".join(filter(None, [kind.lower(), group.partition(".")[0], number]))
    file = Path(tools()["kubernetes"]) / f"v{version}-local-strict" / f"{name}.json"
    if not file.exists():
        return None
    resource = Resource.from_contents(json.loads(file.read_text()))
    return Draft202012Validator(
        resource.contents, registry=resource @ (_definitions(version) @ Registry())
    )


@cache
def _definitions(version: str) -> Any:
    folder = Path(tools()["kubernetes"]) / f"v{version}-local-strict"
    return Resource.from_contents(json.loads((folder / "_definitions.json").read_text()))


@cache
def _crd(api_version: str, kind: str) -> Draft202012Validator | None:
    group, _, number = api_version.partition("/")
    plural = {"TriggerAuthentication": "triggerauthentications"}.get(kind, f"{kind.lower()}s")
    root = tools()["keda"] + "/config/crd/bases" if group == "keda.sh" else tools()["operator"]
    if group != "keda.sh":
        root += "/example/prometheus-operator-crd"
    file = Path(root) / f"{group}_{plural}.yaml"
    if not file.exists():
        return None
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    crd = yaml.load(file.read_text(), Loader=loader)  # noqa: S506 - a safe loader
    (version,) = [one for one in crd["spec"]["versions"] if one["name"] == number]
    return Draft202012Validator(strict(version["schema"]["openAPIV3Schema"]))


def strict(schema: dict[str, Any]) -> dict[str, Any]:
    """Return an OpenAPI schema of a CRD that refuses fields which the API server would prune."""
    made = copy.deepcopy(schema)
    _tighten(made)
    # The API server itself knows what metadata is; the workloads' schemas have checked ours.
    made["properties"]["metadata"] = {"type": "object"}
    return made


def _tighten(schema: dict[str, Any]) -> None:
    if schema.pop("x-kubernetes-int-or-string", False):
        schema["type"] = ["integer", "string"]
    keeps = schema.get("x-kubernetes-preserve-unknown-fields", False)
    if "properties" in schema and "additionalProperties" not in schema and not keeps:
        schema["additionalProperties"] = False
    if schema.pop("nullable", False) and isinstance(schema.get("type"), str):
        schema["type"] = [schema["type"], "null"]
    for child in schema.get("properties", {}).values():
        _tighten(child)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            _tighten(schema[key])
