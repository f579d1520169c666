"""The chart as Helm renders it: objects of a set of values, or the sentence by which it refuses."""

from __future__ import annotations

import copy
import json
import re
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

CHECKOUT: Final = Path(__file__).resolve().parents[2]
CHART: Final = CHECKOUT / "charts" / "angzarr"
#: Sets of values that are rendered and checked in every way.
SETS: Final = sorted(path.stem for path in (CHART / "ci").glob("*.yaml"))
TOOLS: Final = CHECKOUT / "build" / "chart" / "tools.json"
KUBERNETES: Final = "1.37"
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Object = dict[str, Any]


class Refused(Exception):
    """Helm renders nothing; says why."""


@cache
def tools() -> dict[str, str]:
    """Return where helm, promtool and the schemas are."""
    found: dict[str, str] = json.loads(TOOLS.read_text())
    return found


def load_all(text: str) -> list[Object]:
    """Return the objects of a YAML stream; a key that stands twice in one place is an error."""
    return [one for one in yaml.load_all(text, Loader=_Strict) if one]


class _Strict(_LOADER):  # type: ignore[misc]
    """Refuses what Kubernetes refuses and PyYAML lets pass."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:  # noqa: FBT001, FBT002 - PyYAML's signature
        keys = [key.value for key, _ in node.value]
        if twice := {key for key in keys if keys.count(key) > 1}:
            raise ValueError(f"{sorted(twice)} stands twice at {node.start_mark}")
        return super().construct_mapping(node, deep=deep)


def values_of(name: str) -> dict[str, Any]:
    """Return one of the sets of values."""
    found: dict[str, Any] = yaml.load((CHART / "ci" / f"{name}.yaml").read_text(), Loader=_LOADER)  # noqa: S506 - a safe loader
    return found


def changed(values: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return *values* with *changes*: `a__b=1` is {a: {b: 1}}; None takes a key away."""
    made = copy.deepcopy(values)
    for path, value in changes.items():
        *parents, key = path.split("__") if path != "secretEnv" else [path]
        place = made
        for parent in parents:
            place = place.setdefault(parent, {})
        if value is None:
            place.pop(key, None)
        else:
            place[key] = value
    return made


@dataclass(frozen=True, slots=True)
class Rendered:
    """All objects of one rendering."""

    objects: list[Object]

    def all(self, kind: str) -> list[Object]:
        return [one for one in self.objects if one["kind"] == kind]

    def one(self, kind: str, part: str = "") -> Object:
        """Return the only object of *kind* whose name ends with *part*."""
        (found,) = [one for one in self.all(kind) if one["metadata"]["name"].endswith(part)]
        return found

    def workloads(self) -> list[Object]:
        return self.all("Deployment") + self.all("StatefulSet")

    def pod_templates(self) -> list[tuple[str, Object]]:
        """Return every pod that would be made, with the name of what makes it."""
        makers = self.workloads() + self.all("Job")
        named = [(one["metadata"]["name"], one["spec"]["template"]) for one in makers]
        return named + [(one["metadata"]["name"], one) for one in self.all("Pod")]


def render(
    values: dict[str, Any], *, release: str = "t", namespace: str = "shop", chart: Path = CHART
) -> Rendered:
    """Render *values* as one release; raises Refused with what Helm says."""
    command = [tools()["helm"], "template", release, str(chart), "--namespace", namespace]
    ended = subprocess.run(
        [*command, "--kube-version", KUBERNETES, "--values", "-"],
        input=json.dumps(values),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if ended.returncode:
        raise Refused(ended.stderr)
    return Rendered(load_all(ended.stdout))


@cache
def rendered(name: str) -> Rendered:
    """Return one of the sets, rendered; do not change it."""
    return render(values_of(name))


def containers(template: Object) -> list[Object]:
    """Return all containers of a pod, those that initialise it first."""
    spec = template["spec"]
    return [*spec.get("initContainers", []), *spec["containers"]]


def env(container: Object) -> dict[str, Any]:
    """Return what a container's variables are: text, or where they come from."""
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in container["env"]}


def pool(**changes: Any) -> list[dict[str, Any]]:
    """Return pools of which there is one."""
    return [{"name": "default", "queues": ["celery"], **changes}]


def refusal(name: str, **changes: Any) -> str:
    """Return what is said against a set with *changes*, without Helm's own words around it."""
    try:
        render(changed(values_of(name), **changes))
    except Refused as refused:
        found = re.search(r"execution error at \([^)]*\): (.*)", str(refused))
        return found.group(1) if found else str(refused)
    raise AssertionError(f"{name} with {changes} is rendered")
