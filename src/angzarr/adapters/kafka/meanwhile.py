"""Meanwhile: do something of use while a client waits for its broker's answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

_Answer = TypeVar("_Answer")


def meanwhile(ask: Callable[[], _Answer], work: Callable[[], None]) -> _Answer:
    """Return what *ask* returns, or raise what it raises; *work* is done while it waits.

    It begins first: a new thread keeps the interpreter until it waits. If *work* fails, that is
    raised once the answer is there: nobody shall use the client beside *ask*.
    """
    answer: Future[_Answer] = Future()

    def asked() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:  # noqa: BLE001  raised where it is awaited
            answer.set_exception(error)

    try:
        threading.Thread(target=asked, name="angzarr-kafka-commit", daemon=True).start()
    except RuntimeError:  # no more threads
        return ask()
    try:
        work()
    finally:
        wait([answer])
    return answer.result()
