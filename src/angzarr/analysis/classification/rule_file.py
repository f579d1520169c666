"""Rule file: rules as YAML, those that ship with angzarr and those of a user."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final

import yaml  # type: ignore[import-untyped]

from angzarr.analysis.classification.rules import WrittenRule, rules_from
from angzarr.errors import ConfigurationError
from angzarr.runtime.yaml import read_yaml

#: Where settings name rules: those that classify, those that group.
RULES: Final = "analysis.rules"
GROUPING: Final = "analysis.grouping"


@cache
def built_in_rules() -> tuple[WrittenRule, ...]:
    """Return the rules that ship with angzarr, in order."""
    text = resources.files("angzarr.analysis").joinpath("rules.yaml").read_text("utf-8")
    return rules_from(yaml.safe_load(text), "angzarr's rules")


def read(given: str | Sequence[Any], setting: str) -> tuple[Any, str]:
    """Return what a setting says, a list or the path of a YAML file of one, and where it stands.

    Raises ConfigurationError naming file and line.
    """
    if not isinstance(given, str):
        return given, setting
    found = read_yaml(Path(given), f"{setting}: {given}")
    if found is not None and not isinstance(found, list):
        msg = f"{setting}: {given} must hold a list of rules, each beginning with '- '"
        raise ConfigurationError(msg)
    return found or [], given
