"""Rule file: rules as YAML, those that ship with angzarr and those of a user."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final

import yaml  # type: ignore[import-untyped]

from angzarr.analysis.rules import WrittenRule, rules_from
from angzarr.errors import ConfigurationError

#: Where settings name rules: those that classify, those that group.
RULES: Final = "analysis.rules"
GROUPING: Final = "analysis.grouping"
#: Bytes of a file of rules at most; aliases in YAML could make a larger one endless.
_LARGEST: Final = 1_000_000


@cache
def built_in_rules() -> tuple[WrittenRule, ...]:
    """Return the rules that ship with angzarr, in order."""
    text = resources.files("angzarr.analysis").joinpath("rules.yaml").read_text("utf-8")
    return rules_from(yaml.safe_load(text), "angzarr's rules")


def read(given: str | Sequence[Any], setting: str) -> tuple[Any, str]:
    """Return what a setting says, a list or the path of a YAML file of one, and where it stands.

    Raises ConfigurationError naming file and line.
    """
    return (_read_yaml(Path(given), setting), given) if isinstance(given, str) else (given, setting)


def _read_yaml(path: Path, setting: str) -> Any:
    try:
        text = path.read_bytes()
        if len(text) > _LARGEST:
            msg = f"{setting}: {path} is larger than {_LARGEST} bytes"
            raise ConfigurationError(msg)
        given = yaml.safe_load(text) or []
    except OSError as error:
        msg = f"{setting}: {path} cannot be read: {error.strerror or error}"
        raise ConfigurationError(msg) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        where = getattr(error, "problem_mark", None)
        line = f" in line {where.line + 1}" if where is not None else ""
        msg = f"{setting}: {path} is not valid YAML{line}"
        raise ConfigurationError(msg) from error
    if not isinstance(given, list):
        msg = f"{setting}: {path} must hold a list of rules, each beginning with '- '"
        raise ConfigurationError(msg)
    return given
