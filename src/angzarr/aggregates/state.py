"""State ↔ the JSON of a snapshot, and JSON of one's own. Pure."""

from __future__ import annotations

from typing import Any

from pydantic_core import PydanticSerializationError

from angzarr.errors import DecodeError, UnserializableEvent
from angzarr.events.codec import adapter_for, decoder_for


def written(state_type: Any, state: object) -> Any:
    """Return *state* as JSON from which it can be read; raises UnserializableEvent.

    What is not read back as an equal state is refused: fields that are left out, keys that JSON
    makes text, and types that compare nothing.
    """
    try:
        data = adapter_for(state_type).dump_python(state, mode="json")
        if read(state_type, data) == state:
            return data
        why = "another state is read from it"
    except (PydanticSerializationError, DecodeError, ValueError, TypeError) as error:
        why = type(error).__name__
    name = getattr(state_type, "__name__", state_type)
    msg = f"a state of type {name} cannot be kept as JSON: {why}"
    raise UnserializableEvent(msg)


def read(state_type: Any, data: Any) -> Any:
    """Return the state that *data* is, which shares nothing with it; raises DecodeError."""
    return decoder_for(state_type)(copied(data))


def is_one(state_type: Any, state: object) -> bool:
    """Tell whether *state* is of its type, as far as Python can tell."""
    if not isinstance(state_type, type):
        return True
    try:
        return isinstance(state, (int, float) if state_type is float else state_type)
    except TypeError:  # a TypedDict is asked nothing
        return True


def copied(data: Any) -> Any:
    """Return the JSON value *data*, which shares nothing with it that could be changed."""
    if isinstance(data, dict):
        return {key: copied(value) for key, value in data.items()}
    return [copied(value) for value in data] if isinstance(data, list) else data
