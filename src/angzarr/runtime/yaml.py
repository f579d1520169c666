"""YAML files of users. An error names its line, and a key that stands twice is an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml  # type: ignore[import-untyped]

from angzarr.errors import ConfigurationError

#: Bytes of a file at most; aliases in YAML could make a larger one endless.
_LARGEST: Final = 1_000_000
_MERGE: Final = "tag:yaml.org,2002:merge"


def read_yaml(path: Path, named: str) -> Any:
    """What the YAML file *path* holds, which errors call *named*; None: nothing.

    Raises ConfigurationError, with the line where there is one. A key that stands twice in one
    mapping is an error too: YAML forbids it, and its readers keep the last one without a word.
    """
    try:
        text = path.read_bytes()
        if len(text) > _LARGEST:
            msg = f"{named} is larger than {_LARGEST:,} bytes"
            raise ConfigurationError(msg)
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader
    except OSError as error:
        msg = f"{named} cannot be read: {error.strerror or error}"
        raise ConfigurationError(msg) from error
    except _Twice as error:
        msg = f"{named} has {error.problem} twice in one place{_line(error)}: keep one of them"
        raise ConfigurationError(msg) from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        msg = f"{named} is not valid YAML{_line(error)}"
        raise ConfigurationError(msg) from error
    except ValueError as error:  # a date that no calendar has, a number that is too long
        msg = f"{named} holds a value that cannot be read: {error}; quote it if it is text"
        raise ConfigurationError(msg) from error


class _Twice(yaml.MarkedYAMLError):  # type: ignore[misc]
    """A key that stands twice."""


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """A SafeLoader that refuses what stands twice."""

    def compose_mapping_node(self, anchor: Any) -> Any:
        """A mapping as it is written, before others are merged into it."""
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            name = (key.tag, key.value) if isinstance(key, yaml.ScalarNode) else None
            if name in seen:
                raise _Twice(problem=repr(key.value[:80]), problem_mark=key.start_mark)
            if name is not None and key.tag != _MERGE:
                seen.add(name)
        return node


def _line(error: Exception) -> str:
    where = getattr(error, "problem_mark", None)
    return f" in line {where.line + 1}" if where is not None else ""
