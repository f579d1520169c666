"""Green pauses: kombu's pauses let the other greenlets of a worker go on.

gevent looks at all objects while it patches, Celery's proxies among them, which import Celery and
kombu before `time` is patched: their ``sleep`` is the real one then. While such a worker waits
between two tries to connect it stands still as a whole, and its owner lease ends.
"""

from __future__ import annotations

import sys
import time
from types import BuiltinFunctionType
from typing import Final

_THEIRS: Final = ("kombu", "celery", "amqp", "vine")


def mend() -> None:
    """Give modules that have the real ``sleep`` the patched one; nothing where none is patched."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in _THEIRS and _is_real(vars(module).get("sleep")):
            module.sleep = time.sleep  # type: ignore[attr-defined]


def _is_real(sleep: object) -> bool:
    """Tell whether *sleep* is the interpreter's, and not what took its place."""
    real = isinstance(sleep, BuiltinFunctionType) and sleep.__module__ == "time"
    return real and sleep is not time.sleep
