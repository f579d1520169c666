"""Signatures of webhooks after the Standard Webhooks specification (standardwebhooks.com), v1.

Signed is ``id.timestamp.body``; the header holds one signature for each secret, so that a receiver
may know the old one or the new one while they are changed.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence
from datetime import datetime


def signed_headers(
    message_id: str, at: datetime, body: bytes, keys: Sequence[bytes]
) -> dict[str, str]:
    """Return the headers that identify and sign *body*; without keys there is no signature."""
    timestamp = str(int(at.timestamp()))
    headers = {"webhook-id": message_id, "webhook-timestamp": timestamp}
    if keys:
        content = b".".join((message_id.encode(), timestamp.encode(), body))
        headers["webhook-signature"] = " ".join(_signature(content, key) for key in keys)
    return headers


def _signature(content: bytes, key: bytes) -> str:
    digest = hmac.new(key, content, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"
