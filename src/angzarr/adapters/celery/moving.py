"""MoverThread: moves what is due in this app's schedule, from a thread of a worker's parent."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta

from angzarr.adapters.celery.publisher import LonePublisher, refuses, refuses_for_good
from angzarr.delivery.mover import Mover
from angzarr.delivery.schedule import DueMessages
from angzarr.events.message import Message
from angzarr.turn_thread import TurnThread


class MoverThread(TurnThread):
    """Runs a `Mover`; what a stop finds taken and not published is given back."""

    def __init__(
        self,
        due: DueMessages,
        publisher: LonePublisher,
        set_aside: Callable[[bytes, Exception], None],
        bury: Callable[[Message, Exception], object],
    ) -> None:
        def make(stopping: Callable[[], bool]) -> _Moving:
            mover = Mover(
                due=due,
                publish=publisher.publish,
                refuses=refuses,
                for_good=refuses_for_good,
                set_aside=set_aside,
                bury=bury,
                chance=random.random,
                stopping=stopping,
            )
            return _Moving(mover, publisher)

        super().__init__("angzarr-mover", make)


class _Moving:
    def __init__(self, mover: Mover, publisher: LonePublisher) -> None:
        self._mover = mover
        self._publisher = publisher

    def turn(self) -> timedelta:
        return self._mover.turn()

    def leave(self) -> None:
        self._mover.leave()
        self._publisher.close()
