"""Publish ahead: `python -m workers.publish workers.noop_celery 10000`."""

from __future__ import annotations

import sys
from importlib import import_module


def main(app: str, events: int) -> None:
    """Send events 0 … *events* - 1 through the app's own door."""
    send = import_module(app).send
    for number in range(events):
        send(number)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
