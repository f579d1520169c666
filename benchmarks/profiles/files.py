"""How many files and calls one event takes: `python benchmarks/profiles/files.py`.

One process handles a trivial event as a worker's child does, and another one is published and
dead-lettered. Broker, store and dead-letter queue are in memory. A profile hook counts the calls
into angzarr and the files that they enter. The first events are not counted, since they import and
connect; of three more the least is told, since some things are done once a second.

    --list     name the files, with their calls
    --most N   exit with 1 if handling one event enters more than N files
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import angzarr
from angzarr.errors import GiveUp
from profiles.course import Round
from profiles.sides import NAME, OrderPlaced, angzarr_app, angzarr_side, side_of

_SOURCES = str(Path(angzarr.__file__).parent) + "/"
#: Not counted: the first events, which import modules and make what is made once.
_WARM_UP = 3
_COUNTED = 3


class Entered:
    """The calls into each file of angzarr while `around` runs."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def around(self, call: Callable[[], Any]) -> None:
        sys.setprofile(self._hook)
        try:
            call()
        finally:
            sys.setprofile(None)

    def _hook(self, frame: Any, event: str, _arg: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(_SOURCES):
            self.calls[name.removeprefix(_SOURCES)] += 1


def handled() -> Entered:
    """Count what a worker's child does with one event."""
    side = angzarr_side(1, rides=False)
    return _least(lambda around: Round(side, around).run())


def dead_lettered() -> Entered:
    """Count what publishing one event takes and what a child does with it, up to its letter."""
    sender, app = _refusing_app(), _refusing_app()

    def take(around: Callable[[Callable[[], Any]], Any]) -> None:
        one = Round(side_of(sender, app, 1, publish_around=around), around)
        one.run()
        assert [failed for failed, *_ in one.told] == [1], one.told

    return _least(take)


def _least(take: Callable[[Callable[[Callable[[], Any]], Any]], Any]) -> Entered:
    for _ in range(_WARM_UP):
        take(lambda call: call())
    counted = [Entered() for _ in range(_COUNTED)]
    for entered in counted:
        take(entered.around)
    return min(counted, key=lambda entered: len(entered.calls))


def _refusing_app() -> Any:
    app = angzarr_app("memory://", dlq={"backend": "channel"})

    @app.handler(OrderPlaced, domain="order", name=NAME)
    def refuse(_event: OrderPlaced) -> None:
        msg = "it is refused"
        raise GiveUp(msg)

    return app


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--most", type=int)
    given = parser.parse_args()
    logging.getLogger().addHandler(logging.NullHandler())
    counted = {"handled": handled(), "published and dead-lettered": dead_lettered()}
    for name, entered in counted.items():
        print(f"{name:32}{len(entered.calls):6} files{entered.calls.total():8} calls")
        for file, calls in sorted(entered.calls.items()) if given.list else ():
            print(f"    {file:60}{calls:6}")
    if given.most is not None and len(counted["handled"].calls) > given.most:
        sys.exit(f"one event enters more than {given.most} files")


if __name__ == "__main__":
    main()
