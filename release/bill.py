"""A bill of materials (CycloneDX): what a release runs on, put together of what tools told. Pure.

From the environment come the licences and who needs whom, from the pins the versions and hashes.
Nothing in it depends on the machine or the day.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from release.licences import CLASSIFIERS, UNDECLARED
from release.problem import NotFit

Json = dict[str, Any]
#: Hosts that only say where a file was downloaded from, which is another one for everybody.
_REGISTRIES = re.compile(r"(^|\.)(pypi|pythonhosted)\.")
#: What a bill must not say: folders of a machine, and registries.
UNSAID = re.compile(r'file:|"(?:/[\w.-]+){2,}|pythonhosted|pypi\.', re.IGNORECASE)
#: What is a URL at first sight (RFC 3986), and so the IRI that the schema asks for.
PLAIN_URL = re.compile(
    r"https?://[\w.-]+(:\d+)?(/[\w.~/+@:-]*)?(\?[\w.~=&/+@:-]*)?(#[\w.~/+@:-]*)?", re.ASCII
)
#: The bill's own name space for the numbers that are made from what it holds.
_SPACE = uuid.uuid5(uuid.NAMESPACE_URL, "urn:angzarr:bill")


class Pin(NamedTuple):
    """A package as the requirements pin it."""

    name: str
    version: str
    #: SHA-256 of every file that may be installed for it.
    hashes: tuple[str, ...]


def plain(name: str) -> str:
    """Return the *name* of a package in the one way that all tools agree on (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def bill(told: Json, pins: Iterable[Pin], root: Json, needs: set[str], epoch: int) -> Json:
    """Return the bill of *root*, which *needs* some of *pins* itself, as *told* of an environment.

    Raises NotFit for a pin that the environment has not, or another of.
    """
    known = {plain(one["name"]): one for one in told["components"]}
    parts = [_part(pin, known.get(pin.name)) for pin in sorted(pins)]
    refs = {known[part["name"]]["bom-ref"]: part["bom-ref"] for part in parts}
    edges = [{"ref": root["bom-ref"], "dependsOn": sorted(_refs(parts, needs))}]
    edges += sorted(_edges(told, refs), key=lambda edge: str(edge["ref"]))
    return {
        "$schema": told["$schema"],
        "bomFormat": "CycloneDX",
        "specVersion": told["specVersion"],
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(epoch, UTC).isoformat(),
            "tools": {
                "components": [_tool(one) for one in told["metadata"]["tools"]["components"]]
            },
            "component": root,
        },
        "components": parts,
        "dependencies": edges,
    }


def within(container: Json, made: Json) -> Json:
    """Return the bill of *container*, which holds what the bill *made* is of, and its needs."""
    root = made["metadata"]["component"]
    return {
        **made,
        "metadata": {**made["metadata"], "component": container},
        "components": [root, *made["components"]],
        "dependencies": [
            {"ref": container["bom-ref"], "dependsOn": [root["bom-ref"]]},
            *made["dependencies"],
        ],
    }


def numbered(made: Json) -> Json:
    """Return *made* with a serial number of its own, which another bill of the same has too."""
    number = uuid.uuid5(_SPACE, json.dumps(made, sort_keys=True))
    return {**made, "serialNumber": f"urn:uuid:{number}"}


def licences(made: Json) -> dict[str, list[str]]:
    """Return package → what it declares, in SPDX or the words of the older classifiers."""
    return {
        part["name"]: [
            one.get("expression") or one["license"].get("id") or one["license"]["name"]
            for one in part.get("licenses", ())
        ]
        for part in made["components"]
    }


def _part(pin: Pin, found: Json | None) -> Json:
    if found is None:
        raise NotFit(f"{pin.name} is pinned and not installed in the environment: run make env")
    if found["version"] != pin.version:
        other = found["version"]
        raise NotFit(f"{pin.name} is pinned to {pin.version}, and {other} is installed: make env")
    url = f"pkg:pypi/{pin.name}@{pin.version}"
    part = {
        "type": "library",
        "bom-ref": url,
        "name": pin.name,
        "version": pin.version,
        "purl": url,
        "description": found.get("description", ""),
        "licenses": _licences(pin.name, found),
        "hashes": [{"alg": "SHA-256", "content": one} for one in sorted(pin.hashes)],
        "externalReferences": _references(found),
    }
    return {key: value for key, value in part.items() if value}


def _licences(name: str, found: Json) -> list[Json]:
    """Return what *found* declares: as an SPDX id where it is known, each once."""
    declared = found.get("licenses", [])
    if not declared and name in UNDECLARED:
        return [{"license": {"id": UNDECLARED[name], "acknowledgement": "concluded"}}]
    spdx = []
    for one in declared:
        words = one.get("license", {}).get("name", "")
        known = CLASSIFIERS.get(words)
        named = {"license": {"id": known, "acknowledgement": "declared"}}
        spdx.append(named if known else one)
    return [one for number, one in enumerate(spdx) if one not in spdx[:number]]


def _references(found: Json) -> list[Json]:
    return [
        {key: one[key] for key in ("type", "url")}
        for one in found.get("externalReferences", ())
        if one["url"].startswith("http")
        and not _REGISTRIES.search(urlsplit(one["url"]).hostname or "")
    ]


def _tool(found: Json) -> Json:
    return {key: found[key] for key in ("type", "group", "name", "version") if key in found}


def _refs(parts: list[Json], names: set[str]) -> set[str]:
    return {part["bom-ref"] for part in parts if part["name"] in names}


def _edges(told: Json, refs: dict[str, str]) -> Iterable[Json]:
    for edge in told["dependencies"]:
        if edge["ref"] in refs:
            on = sorted(refs[one] for one in edge.get("dependsOn", ()) if one in refs)
            yield {"ref": refs[edge["ref"]], **({"dependsOn": on} if on else {})}
