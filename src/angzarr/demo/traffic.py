"""Traffic: what the demo publishes, some of it twice, and the journal line for each."""

from __future__ import annotations

import importlib
import json
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar

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

T = TypeVar("T")


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
            f'line {number} of {file} is not an event: write {{"type": "…", "data": {{…}}}}'
            f" ({type(error).__name__}: {error})"
        )
        raise ConfigurationError(msg) from error


def with_duplicates(items: Iterable[T], seed: int) -> Iterator[T]:
    """Yield *items*, some of them once more a little later."""
    dice = random.Random(f"duplicates {seed}")  # noqa: S311 - to be repeatable, not secret
    again: list[tuple[int, T]] = []
    number = 0
    for number, item in enumerate(items):
        yield item
        if dice.random() < TWICE:
            again.append((number + dice.randint(0, LATER), item))
        due = [late for at, late in again if at <= number]
        again = [(at, late) for at, late in again if at > number]
        yield from due
    yield from (late for _, late in again)


class Publisher(threading.Thread, Generic[T]):
    """Publishes in the background, some items twice; `error` says why it ended early.

    *before* is called first, with an event that is set when it is to end.
    """

    def __init__(
        self,
        items: Sequence[T],
        publish: Callable[[T], None],
        seed: int,
        *,
        before: Callable[[threading.Event], object] = lambda _stopped: None,
    ) -> None:
        super().__init__(name="demo-publisher", daemon=True)
        self._items = list(with_duplicates(items, seed))
        self._publish = publish
        self._before = before
        self._stopped = threading.Event()
        self.error: Exception | None = None

    def run(self) -> None:
        """Publish everything, in order."""
        try:
            self._before(self._stopped)
            began, pause = time.monotonic(), min(SPREAD / len(self._items), PAUSE)
            for number, item in enumerate(self._items):
                early = began + number * pause - time.monotonic()
                if self._stopped.wait(max(early, 0)):
                    return
                again_if_incomplete(self._publish, item)
        except Exception as error:  # noqa: BLE001 - told by the thread that watches
            self.error = error

    def stop(self) -> None:
        """Publish no more."""
        self._stopped.set()
        self.join()


def again_if_incomplete(publish: Callable[[T], None], item: T) -> None:
    """Publish *item*, and again if not every handler was sent it: that is safe."""
    for _ in range(TRIES - 1):
        try:
            return publish(item)
        except PublishIncomplete:
            time.sleep(0.5)
    return publish(item)
