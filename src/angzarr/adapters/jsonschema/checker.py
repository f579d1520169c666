"""Checks values by the library jsonschema, which is given nothing by which it could ask a server.

A schema may refer to its own parts only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from jsonschema.validators import validator_for
from referencing.exceptions import Unresolvable
from referencing.jsonschema import EMPTY_REGISTRY

from angzarr.errors import ConfigurationUnfit
from angzarr.runtime.text import printable

_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
#: Characters of the library's words that a sentence repeats.
_LONGEST: Final = 300


class JsonSchemaChecker:
    """Fulfils `SchemaChecker`; a schema without ``$schema`` is one of draft 2020-12."""

    def check_schema(self, schema: Any, /) -> None:
        """Refuse what is no schema, and references to other documents."""
        if not isinstance(schema, dict | bool):
            msg = "the schema must be a JSON object"
            raise ConfigurationUnfit(msg)
        for reference in _references(schema):
            if not reference.startswith("#"):
                msg = (
                    f"the schema refers to {printable(reference[:_LONGEST])}, which is not fetched:"
                    " put what it needs under $defs and refer to #/$defs/…"
                )
                raise ConfigurationUnfit(msg)
        try:
            _kind(schema).check_schema(schema)
        except SchemaError as error:
            msg = f"the schema is no JSON schema: {_told(error)}"
            raise ConfigurationUnfit(msg) from None

    def check(self, value: Any, schema: Any, /) -> None:
        """Refuse a value that breaks its schema, and name the most telling place."""
        try:
            error = best_match(_kind(schema)(schema, registry=EMPTY_REGISTRY).iter_errors(value))
        except Unresolvable as missing:
            msg = f"the schema refers to {printable(missing.ref)}, which it does not have: add it"
            raise ConfigurationUnfit(msg) from None
        except RecursionError:
            msg = "the schema refers to itself without end: correct its references"
            raise ConfigurationUnfit(msg) from None
        if error is not None:
            msg = f"the value breaks its schema {_told(error)}"
            raise ConfigurationUnfit(msg)


def _kind(schema: Any) -> Any:
    return validator_for(schema, default=Draft202012Validator)


def _told(error: ValidationError | SchemaError) -> str:
    pointer = "".join(
        f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in error.absolute_path
    )
    text = printable(error.message)
    short = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
    return f"at {printable(pointer) or '(all)'}: {short}"


def _references(schema: Any) -> Iterator[str]:
    left = [schema]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            yield from (one[name] for name in _REFERENCES if isinstance(one.get(name), str))
            left.extend(one.values())
        elif isinstance(one, list):
            left.extend(one)
