"""Checks a value by the library jsonschema, which is given nothing by which it could ask a server.

A schema may refer to its own parts only. A check may take very long, as a pattern or references
may make it: `child` is where it runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from jsonschema.validators import extend, validator_for
from referencing.exceptions import Unresolvable
from referencing.jsonschema import EMPTY_REGISTRY

from angzarr.errors import ConfigurationUnfit
from angzarr.runtime.text import printable

_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
#: Characters of the library's words, and of a keyword's value, that a sentence repeats.
_LONGEST: Final = 300
#: What Python raises for a pattern that it cannot compile.
_NO_PATTERN: Final = (re.error, OverflowError)

_Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]


class SchemaTooCostly(Exception):
    """A check took too long, or too much memory; `at`: the keyword that it was busy with."""

    at: str = ""


def check_value(value: Any, schema: Any) -> None:
    """Raise ConfigurationUnfit for what is not a JSON schema, and for a value that breaks it.

    A schema without ``$schema`` is one of draft 2020-12. Raises SchemaTooCostly as the caller's
    alarm does, and where memory ends.
    """
    kind = _kind(schema)
    try:
        _check_schema(schema, kind)
        _check(value, schema, _telling(kind))
    except _NO_PATTERN as error:
        msg = f"the schema has a pattern that is not a regular expression: {printable(str(error))}"
        raise ConfigurationUnfit(msg) from None
    except RecursionError:
        msg = (
            "the schema refers to itself without end, or has a pattern with too many brackets:"
            " correct its references and patterns"
        )
        raise ConfigurationUnfit(msg) from None


def _kind(schema: Any) -> Any:
    if not isinstance(schema, dict | bool):
        msg = "the schema must be a JSON object"
        raise ConfigurationUnfit(msg)
    if isinstance(schema, dict) and not isinstance(schema.get("$schema", ""), str):
        msg = "the schema is not a JSON schema: at /$schema: give a URI, or leave it out"
        raise ConfigurationUnfit(msg)
    return validator_for(schema, default=Draft202012Validator)


def _check_schema(schema: Any, kind: Any) -> None:
    for reference in _references(schema):
        if not reference.startswith("#"):
            msg = (
                f"the schema refers to {printable(reference[:_LONGEST])}, which is not fetched:"
                " put what it needs under $defs and refer to #/$defs/…"
            )
            raise ConfigurationUnfit(msg)
    try:
        kind.check_schema(schema)
    except SchemaTooCostly as costly:
        costly.at = "the schema itself"
        raise
    except SchemaError as error:
        msg = f"the schema is not a JSON schema: {_told(error)}"
        raise ConfigurationUnfit(msg) from None


def _check(value: Any, schema: Any, kind: Any) -> None:
    try:
        error = best_match(kind(schema, registry=EMPTY_REGISTRY).iter_errors(value))
    except SchemaTooCostly as costly:
        costly.at = costly.at or "what it found wrong"
        raise
    except Unresolvable as missing:
        msg = f"the schema refers to {printable(missing.ref)}, which it does not have: add it"
        raise ConfigurationUnfit(msg) from None
    if error is not None:
        msg = f"the value breaks its schema {_told(error)}"
        raise ConfigurationUnfit(msg)


def _telling(kind: Any) -> Any:
    """*kind*, whose keywords say which of them a check was busy with when it was stopped."""
    told = {name: _keyword_telling(name, check) for name, check in kind.VALIDATORS.items()}
    return extend(kind, told)


def _keyword_telling(name: str, check: _Keyword) -> _Keyword:
    def checked(validator: Any, wanted: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
        try:
            yield from check(validator, wanted, value, schema) or ()
        except (SchemaTooCostly, MemoryError) as error:
            costly = error if isinstance(error, SchemaTooCostly) else SchemaTooCostly()
            costly.at = costly.at or f"{name} {_short(_words(wanted))}".strip()
            raise costly from None

    return checked


def _words(wanted: Any) -> str:
    """What a keyword wants, in a few words: of an object its names, as patternProperties has."""
    if isinstance(wanted, dict):
        return ", ".join(repr(name) for name in list(wanted)[:5])
    return repr(wanted) if isinstance(wanted, str) else ""


def _told(error: ValidationError | SchemaError) -> str:
    pointer = "".join(
        f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in error.absolute_path
    )
    return f"at {_short(pointer) or '(all)'}: {_short(error.message)}"


def _short(text: str) -> str:
    shown = printable(text[: _LONGEST + 1])
    return shown if len(shown) <= _LONGEST else shown[: _LONGEST - 1] + "…"


def _references(schema: Any) -> Iterator[str]:
    left = [schema]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            yield from (one[name] for name in _REFERENCES if isinstance(one.get(name), str))
            left.extend(one.values())
        elif isinstance(one, list):
            left.extend(one)
