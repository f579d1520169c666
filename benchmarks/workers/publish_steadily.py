"""Publish at an even pace: `python -m workers.publish_steadily workers.noop_celery 200 26000`."""

from __future__ import annotations

import sys
import time
from importlib import import_module

from workers.environment import FOLDER
from workers.journal import Journal


def main(app: str, rate: int, events: int) -> None:
    """Send *events* events, *rate* a second; write down each once it is sent."""
    send = import_module(app).send
    published = Journal(FOLDER / "published")
    began = time.monotonic()
    for number in range(events):
        time.sleep(max(0.0, began + number / rate - time.monotonic()))
        send(number)
        published.write(number)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
