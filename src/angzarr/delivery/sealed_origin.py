"""SealedOrigin: a message that came encrypted, as it is known to what is made of it. Pure.

What came encrypted goes on encrypted, whatever the process that sends it on is set to (ADR 0091):
a copy with other arguments, the tasks that follow, a compensation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from angzarr.errors import DecodeError
from angzarr.events.headers import TENANT_ID
from angzarr.payloads.claim_check import HEADER, check_in


class SealedOrigin(NamedTuple):
    """The id of the key that sealed a message, and the tenant of its event."""

    key: str
    tenant: str | None = None


def origin_in(headers: Mapping[str, Any]) -> SealedOrigin | None:
    """The origin of what is made of the message with *headers*; None: it did not come encrypted.

    A queue is hostile. What only claims to be encrypted is never opened: nothing is made of it but
    what its message shows, as errbacks, and that is encrypted then without need, by a key of this
    app. So a forged claim turns encryption on, and none can turn it off.
    """
    if HEADER not in headers:
        return None
    try:
        check = check_in(headers)
    except DecodeError:
        return None
    if check is None or not check.key:
        return None
    tenant = headers.get(TENANT_ID)
    return SealedOrigin(check.key, tenant if isinstance(tenant, str) else None)
