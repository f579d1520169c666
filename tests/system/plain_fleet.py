"""A site with the one worker that its tests share, and what is asked of it by remote control."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

import pytest
from celery.exceptions import TaskRevokedError
from celery.result import AsyncResult
from kombu import Queue

from polling import wait_until
from system.plain_site import PlainSite, Worker


class Fleet(NamedTuple):
    """A site, and the worker that most of its tests share."""

    site: PlainSite
    worker: Worker
    slots: int
    later: AsyncResult
    #: What was revoked or expired and is to be looked for once more at the end.
    never: list[AsyncResult]

    def text(self) -> str:
        """Return what a failed test is to show: what is held, where its processes are, the log."""
        held = self.site.held()
        return f"{self.worker.with_stacks()}\nheld unacknowledged: {held}"

    @property
    def reach(self) -> dict[str, object]:
        """Whom to ask, and how long to wait for the answer."""
        return {"destination": [self.worker.name], "timeout": 10}

    def inspect(self, what: str):
        answer = getattr(self.site.app.control.inspect(**self.reach, limit=1), what)()
        return answer[self.worker.name]

    def tell(self, command: str, *args: object, **more: object) -> list[dict]:
        control = getattr(self.site.app.control, command)
        replies = control(*args, **self.reach, reply=True, limit=1, **more)
        assert [list(reply) for reply in replies] == [[self.worker.name]]
        return replies

    def wait_until_told(self, queue: str, *, consumes: bool) -> None:
        """Wait until the worker did what it answered it would: its consumer does it next turn."""
        wait_until(
            lambda: (queue in [one["name"] for one in self.inspect("active_queues")]) is consumes,
            f"{queue} to be consumed from: {consumes}",
        )

    def hears(self, ear: Queue) -> bool:
        """Say whether the worker hears a broadcast by now: it subscribes after its answer."""
        probe = self.site.tasks.tell.apply_async(queue=ear)
        with contextlib.suppress(pytest.fail.Exception):
            return bool(self.site.wait_runs(probe, seconds=0.3))
        return False

    def expect_revoked(self, *results: AsyncResult) -> None:
        """Fail unless they are revoked; that they never run is seen at the end."""
        for result in results:
            with pytest.raises(TaskRevokedError):
                result.get(timeout=60)
        self.never.extend(results)


def listen_until(connection, truth) -> None:
    """Take in what comes on *connection* until *truth* holds; subscribes first of all."""

    def heard() -> object:
        with contextlib.suppress(TimeoutError):
            connection.drain_events(timeout=0.2)
        return truth()

    wait_until(heard, "it is heard")
