"""Connections to PostgreSQL that give up on a server which is there and does not answer.

libpq bounds connects and, by TCP, peers that are gone; the server bounds statements. A server that
is frozen does neither, and whoever asked it would wait for ever and say nothing.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

from sqlalchemy import Engine, event

_Answer = TypeVar("_Answer")

#: Seconds beyond what a statement may take: the server's own limit is to speak first.
GRACE: Final = 1.0


def give_up_on_the_mute(engine: Engine, seconds: float) -> None:
    """Let every connection of *engine* fail that has no answer *seconds* and GRACE after it asked.

    The connection is closed: what comes late is nobody's answer.
    """
    import psycopg  # noqa: PLC0415 - an extra

    class Impatient(psycopg.Connection[Any]):
        """Closes itself when an answer is overdue; what was asked may have been done."""

        def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
            try:
                wanted = next(gen)
            except StopIteration as end:  # there is nothing to wait for
                return end.value
            bounded = _bounded(gen, wanted, seconds + GRACE, self._overdue)
            with _closed_quietly(gen):
                return super().wait(bounded, *args, **options)

        def _overdue(self) -> Exception:
            self.pgconn.finish()
            return psycopg.OperationalError(f"no answer within {seconds + GRACE:g} s")

    @event.listens_for(engine, "do_connect")
    def connect(_dialect: Any, _record: Any, args: Any, options: Any) -> Any:
        return Impatient.connect(*args, **options)


@contextmanager
def _closed_quietly(steps: Generator[Any, Any, Any]) -> Iterator[None]:
    """Close *steps* where the wait for them fails: a pipeline that is cut off asks once more.

    Left to be collected it would complain of that into the log, at length.
    """
    try:
        yield
    except BaseException:
        with suppress(Exception):
            steps.close()
        raise


def _bounded(
    steps: Generator[Any, Any, _Answer], wanted: Any, seconds: float, overdue: Any
) -> Generator[Any, Any, _Answer]:
    """Go on with *steps* of a request; raise what *overdue* returns once they take too long.

    Each step yields what it waits for, the first one *wanted*; it is sent nothing whenever a while
    has passed in vain.
    """
    until = time.monotonic() + seconds
    try:
        while True:
            ready = yield wanted
            if not ready and time.monotonic() > until:
                raise overdue()
            wanted = steps.send(ready)
    except StopIteration as end:
        answer: _Answer = end.value
        return answer
