"""Keys in settings: by id, one of them in use. No message shows one."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pydantic import SecretStr

from angzarr.payloads.body_sealer import KEY_ID

KEY_BYTES: Final = 32


def check_key_ids(names: Iterable[str]) -> None:
    """Raise ValueError unless all of *names* are ids of keys."""
    for name in names:
        if not KEY_ID.match(name):
            # Unnamed: by mistake it may be a key.
            msg = "a key id has letters, digits, '.', '_' and '-', at most 64; one of these has not"
            raise ValueError(msg)


def encryption_keys(given: Mapping[str, SecretStr]) -> dict[str, bytes]:
    """The keys of *given*, which are in base64; raises ValueError."""
    return {name: _key(name, secret) for name, secret in given.items()}


def current_key(setting: str, named: str | None, keys: Mapping[str, Any]) -> str | None:
    """The id of the key in use, None where there are no keys; raises ValueError."""
    if named is not None and named not in keys:
        msg = f"{setting} must be the id of one of {setting}s"  # it may be a key by mistake
        raise ValueError(msg)
    if named is None and len(keys) > 1:
        msg = f"{setting} must say which of the {setting}s is in use: {', '.join(keys)}"
        raise ValueError(msg)
    return named or next(iter(keys), None)


def _key(name: str, given: SecretStr) -> bytes:
    try:
        key = base64.b64decode(given.get_secret_value(), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        msg = (
            f"encryption_keys.{name} must be {KEY_BYTES} bytes in base64:"
            " make one with `openssl rand -base64 32`"
        )
        raise ValueError(msg) from None
    return key
