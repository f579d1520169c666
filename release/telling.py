"""The tools that tell of an environment and check a bill: cyclonedx-py and CycloneDX's schema."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from jsonschema import Draft7Validator

from release.bill import PLAIN_URL, UNSAID
from release.problem import NotFit


def told_of(python: Path) -> dict[str, Any]:
    """Return what cyclonedx-py tells of the environment of *python*."""
    tool = Path(sys.executable).with_name("cyclonedx-py")
    options = ["--no-validate", "--output-reproducible", "--output-format", "JSON", "-o", "-"]
    told = subprocess.run(
        [str(tool), "environment", *options, str(python)],
        capture_output=True,
        text=True,
        check=False,
    )
    if told.returncode:
        raise NotFit(f"cyclonedx-py cannot read {python}: {told.stderr.strip()[-1000:]}")
    found: dict[str, Any] = json.loads(told.stdout)
    return found


def checked(made: dict[str, Any]) -> str:
    """Return *made* as text; raises NotFit unless it fits its schema and names no machine."""
    _know_plain_urls()
    text = json.dumps(made, indent=2, sort_keys=True) + "\n"
    version = SchemaVersion.from_version(made["specVersion"])
    error = JsonStrictValidator(version).validate_str(text)
    if error:
        raise NotFit(f"the bill of materials does not fit CycloneDX's schema: {str(error)[:500]}")
    if said := UNSAID.search(text):
        raise NotFit(f"the bill of materials names a folder or a registry: {said[0]}")
    return text


@cache
def _know_plain_urls() -> None:
    """Spare plain URLs the schema's parser of IRIs: 20 ms each were most of `make dist`."""
    formats: dict[str, Any] = Draft7Validator.FORMAT_CHECKER.checkers
    parsed, raises = formats["iri-reference"]

    def fits(value: object) -> bool:
        plain = isinstance(value, str) and PLAIN_URL.fullmatch(value)
        return bool(plain or parsed(value))

    formats["iri-reference"] = (fits, raises)
