"""What settings say of any webhook: its address, and the keys that sign (Standard Webhooks)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from pydantic import SecretStr

#: How a secret begins, and how many bytes of key it holds (Standard Webhooks).
_MARK: Final = "whsec_"
SECRET_BYTES: Final = range(24, 65)


def keys_of(secrets: Sequence[SecretStr]) -> tuple[bytes, ...]:
    """The keys that sign; raises ValueError, which never shows one."""
    return tuple(_key(secret.get_secret_value()) for secret in secrets)


def check_address(url: str) -> None:
    """Refuse a URL that is not a receiver's address with ValueError, repeating none of it."""
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        known = False
    if not known or not url.isprintable() or " " in url:
        raise ValueError("a webhook's url must be http://host/… or https://host/…")
    if "@" in parts.netloc:
        msg = "a webhook's url must hold no user and password: receivers know us by their"
        msg += " signature"
        raise ValueError(msg)
    if parts.fragment:
        raise ValueError("a webhook's url must have no #fragment, which would not be sent")


def _key(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(_MARK), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(_MARK) or len(key) not in SECRET_BYTES:
        msg = "a webhook's secret is whsec_ and the base64 of 24 to 64 random bytes;"
        msg += " make one with: echo whsec_$(openssl rand -base64 32)"
        raise ValueError(msg)
    return key
