"""Custom headers: what a message's headers say besides Celery's own, as ``task.request.headers``.

Celery sorts them out anew for each message, by way of a set of all its names; where they are given
it does not. This package's own are left out: whoever forwards what is here to another task would
hand on the queue, the attempts and the event id of this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from celery.app.task import Context

from angzarr.adapters.celery.envelope import FIELD, TOLD
from angzarr.events.headers import is_ours, without_ours

#: As in `Context._get_custom_headers` of Celery 5.7; a test compares them.
_OF_CELERY = frozenset({*vars(Context), "lang", "task", "argsrepr", "kwargsrepr", "compression"})
_NO_CUSTOM = _OF_CELERY | {FIELD, TOLD}


def custom_headers(request: Mapping[str, Any]) -> Any:
    """Return the custom headers of a request; what a header ``headers`` says goes before them."""
    given = request.get("headers")
    if given is not None:
        return without_ours(given) if isinstance(given, Mapping) else given
    return {
        name: value
        for name, value in request.items()
        if name not in _NO_CUSTOM and not is_ours(name)
    }
