"""Traffic: what the demo publishes, some of it twice, and the journal line for each."""

from __future__ import annotations

import importlib
import json
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from angzarr.cli.demo_journal import PUBLISHED, Pair
from angzarr.errors import ConfigurationError, PublishIncomplete

#: The share of the events that is published once more with the same id.
TWICE: Final = 0.05
#: How many other events go in between.
LATER: Final = 12
#: Publishing is spread over this many seconds, so that people see something; a few events are not
#: held back longer than PAUSE each.
SPREAD: Final = 6.0
PAUSE: Final = 0.05
#: How often an event that not every handler was sent is published again; that is safe.
TRIES: Final = 5


class Item(NamedTuple):
    """One event to publish."""

    id: str
    type: str
    event: Any
    root: str


def of_examples(run_id: str, count: int, seed: int) -> list[Item]:
    """Return *count* events of the examples' shop and card room."""
    traffic = importlib.import_module("traffic")
    return [
        Item(f"{run_id}:{number:05}", event_type, event, root)
        for number, (event_type, event, root) in enumerate(traffic.day(count, seed))
    ]


def of_file(file: Path, run_id: str, count: int | None) -> list[Item]:
    """Return the first *count* events of *file*: a JSON object with type and data on each line."""
    with file.open(encoding="utf-8") as lines:
        written = [
            _parsed(file, number, line) for number, line in enumerate(lines, 1) if line.strip()
        ]
    if not written:
        msg = f"{file} holds no events: write one JSON object with type and data on each line"
        raise ConfigurationError(msg)
    return [
        Item(f"{run_id}:{number:05}", event_type, data, f"e-{number:05}")
        for number, (event_type, data) in enumerate(written[:count])
    ]


def _parsed(file: Path, number: int, line: str) -> tuple[str, Any]:
    try:
        parsed = json.loads(line)
        return str(parsed["type"]), parsed["data"]
    except (ValueError, TypeError, KeyError) as error:
        msg = (
            f'line {number} of {file} is no event: write {{"type": "…", "data": {{…}}}}'
            f" ({type(error).__name__}: {error})"
        )
        raise ConfigurationError(msg) from error


def with_duplicates(items: Iterable[Item], seed: int) -> Iterator[Item]:
    """Yield *items*, some of them once more a little later."""
    dice = random.Random(f"duplicates {seed}")  # noqa: S311 - to be repeatable, not secret
    again: list[tuple[int, Item]] = []
    number = 0
    for number, item in enumerate(items):
        yield item
        if dice.random() < TWICE:
            again.append((number + dice.randint(0, LATER), item))
        due = [late for at, late in again if at <= number]
        again = [(at, late) for at, late in again if at > number]
        yield from due
    yield from (late for _, late in again)


class Publisher(threading.Thread):
    """Publishes in the background; `error` says why it ended early."""

    def __init__(self, app: Any, items: list[Item], seed: int) -> None:
        super().__init__(name="demo-publisher", daemon=True)
        self._app = app
        self._items = list(with_duplicates(items, seed))
        self._stopped = threading.Event()
        self.error: Exception | None = None

    def run(self) -> None:
        """Publish everything, in order."""
        began, pause = time.monotonic(), min(SPREAD / len(self._items), PAUSE)
        try:
            for number, item in enumerate(self._items):
                early = began + number * pause - time.monotonic()
                if self._stopped.wait(max(early, 0)):
                    return
                self._publish(item)
        except Exception as error:  # noqa: BLE001 - told by the thread that watches
            self.error = error

    def stop(self) -> None:
        """Publish no more."""
        self._stopped.set()
        self.join()

    def _publish(self, item: Item) -> None:
        """Publish *item* and write a line for each handler that must have got it."""

        def publish() -> None:
            self._app.publish(item.event, type=item.type, id=item.id, root=item.root, check=False)

        _again_if_incomplete(publish)
        for handler in self._app.takers[item.type]:
            self._app.journal.write(PUBLISHED, Pair(handler, item.id))


def _again_if_incomplete(publish: Callable[[], None]) -> None:
    for _ in range(TRIES - 1):
        try:
            return publish()
        except PublishIncomplete:
            time.sleep(0.5)
    return publish()
