"""Publish ahead: `python -m workers.publish workers.noop_celery 10000 [first]`."""

from __future__ import annotations

import sys
from importlib import import_module


def main(app: str, events: int, first: int = 0) -> None:
    """Send *events* events, numbered from *first*, through the app's own door."""
    module, numbers = import_module(app), range(first, first + events)
    if hasattr(module, "send_many"):
        module.send_many(numbers)
        return
    for number in numbers:
        module.send(number)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
