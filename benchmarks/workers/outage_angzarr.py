"""A stream of events that are slow, retried or given up; each end is written down."""

from __future__ import annotations

import time

from angzarr import Context, GiveUp, RetryLater
from workers import numbered
from workers.environment import FOLDER
from workers.journal import Journal
from workers.numbered import Numbered, app, letters

__all__ = ["app"]

#: Which events were handled, and when.
HANDLED = Journal(FOLDER / "journal")
#: Between two publications (s): ten events a second.
APART = 0.1
#: How long a handler runs, and how long what is retried waits (s).
RUNS = 0.03
RETRIED_AFTER = 0.3
#: Of so many events one is retried once, and one given up.
RETRIED_OF = GIVEN_UP_OF = 6


@app.handler(Numbered, domain="order", name="bench.outage")
def work(event: Numbered, ctx: Context) -> None:
    time.sleep(RUNS)
    if is_given_up(event.number):
        raise GiveUp("as planned")
    if event.number % RETRIED_OF == 1 and ctx.attempt == 1:
        raise RetryLater(RETRIED_AFTER)
    HANDLED.write(event.number)


def is_given_up(number: int) -> bool:
    """Tell whether the event of this number is to become a letter."""
    return number % GIVEN_UP_OF == 0


def send(number: int) -> None:
    """Publish one event, and wait until it is time for the next."""
    numbered.send(number)
    time.sleep(APART)


if __name__ == "__main__":
    print(*letters())
