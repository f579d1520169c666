"""One subscription's stream: letters as they arrive, their leases kept by Google's client."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from google.api_core.exceptions import GoogleAPICallError, NotFound
from google.cloud.pubsub_v1.subscriber.scheduler import Scheduler
from google.cloud.pubsub_v1.types import FlowControl

from angzarr.adapters.pubsub.client import FAILURES, Clients, unavailable
from angzarr.adapters.pubsub.forking import CALLS
from angzarr.dead_letters.queue import Room

#: Leases that one request ends.
_BATCH: Final = 1_000
#: Bytes of letters that one subscription has under way at most.
_MOST_BYTES: Final = 100_000_000


class _AtOnce(Scheduler):
    """Hands letters over in the thread that reads them; the client's own has a pool of ten."""

    def __init__(self) -> None:
        self._queue: queue.Queue[Any] = queue.Queue()

    @property
    def queue(self) -> Any:
        return self._queue

    def schedule(self, callback: Any, *args: Any, **kwargs: Any) -> None:
        callback(*args, **kwargs)

    def shutdown(self, await_msg_callbacks: bool = False) -> list[Any]:  # noqa: ARG002, FBT001, FBT002 - Google's
        return []


class LetterStream:
    """A stream of one subscription; *inbox* guards it, and is notified when something arrives."""

    def __init__(
        self,
        clients: Clients,
        name: str,
        inbox: threading.Condition,
        *,
        lease: int,
        prefetch: int,
    ) -> None:
        self._clients = clients
        self._subscription = clients.service.subscription(name)
        self._inbox = inbox
        self._arrived: deque[Any] = deque()
        self._held: dict[str, Any] = {}
        self._pull = clients.subscriber.subscribe(
            self._subscription,
            self._arrive,
            flow_control=FlowControl(
                max_messages=prefetch,
                max_bytes=_MOST_BYTES,
                min_duration_per_lease_extension=lease,
                max_duration_per_lease_extension=lease,
            ),
            scheduler=_AtOnce(),
        )
        CALLS.stream(+1)
        self._pull.add_done_callback(self._wake)

    @property
    def ended(self) -> bool:
        """Whether Pub/Sub has ended the stream for good."""
        return bool(self._pull.done())

    @property
    def holds(self) -> bool:
        """Whether a letter of it is in somebody's hands."""
        return bool(self._held)

    def why_ended(self) -> BaseException | None:
        """Return why the stream has ended."""
        return self._pull.exception(timeout=0) if self.ended else None

    def take(self, room: Room) -> list[Any]:
        """Return letters that have arrived, while there is *room*. To be called with the inbox."""
        taken = []
        while self._arrived and room:
            taken.append(self._arrived.popleft())
            room.take(taken[-1].size)
        self._held.update((message.ack_id, message) for message in taken)
        return taken

    def done(self, ack_ids: Collection[str]) -> None:
        """Let these go for good; those whose lease has ended are ignored."""
        with self._inbox:
            ours = [ack_id for ack_id in ack_ids if ack_id in self._held]
        for batch in _batches(ours):
            again = self._acknowledge(batch)
            self._forget(set(batch) - again)
            if again:
                why = f"{len(again)} letters could not be acknowledged yet"
                raise unavailable(why)

    def stop(self) -> None:
        """Begin to end the stream."""
        self._pull.cancel()

    def await_end(self) -> None:
        """Return once the stream has ended, or takes too long to."""
        with contextlib.suppress(Exception):  # an error is why it ended
            self._pull.result(timeout=self._clients.service.timeout)
        CALLS.stream(-1)

    def give_back(self) -> None:
        """Give the letters of the stream to whoever asks next."""
        with self._inbox:
            ack_ids = [*self._held, *(message.ack_id for message in self._arrived)]
            self._held.clear()
            self._arrived.clear()
        for batch in _batches(ack_ids):
            with contextlib.suppress(*FAILURES):  # their leases end by themselves
                self._clients.subscriber.modify_ack_deadline(
                    subscription=self._subscription, ack_ids=batch, ack_deadline_seconds=0
                )

    def _acknowledge(self, batch: Sequence[str]) -> set[str]:
        """Acknowledge *batch* and return what must be acknowledged again."""
        try:
            self._clients.subscriber.acknowledge(
                subscription=self._subscription, ack_ids=batch, **self._clients.service.once
            )
        except NotFound:  # the subscription was deleted, and its letters with it
            return set()
        except GoogleAPICallError as error:
            again = _to_be_repeated(error, batch)
            if again is None:
                raise
            return again
        return set()

    def _forget(self, ack_ids: Collection[str]) -> None:
        with self._inbox:
            messages = [self._held.pop(ack_id, None) for ack_id in ack_ids]
        for message in filter(None, messages):
            message.drop()  # its lease is renewed no more

    def _arrive(self, message: Any) -> None:
        with self._inbox:
            self._arrived.append(message)
            self._inbox.notify_all()

    def _wake(self, _pull: Any) -> None:
        with self._inbox:
            self._inbox.notify_all()


def _batches(ack_ids: Sequence[str]) -> Iterator[list[str]]:
    rest = iter(ack_ids)
    while batch := list(islice(rest, _BATCH)):
        yield batch


def _to_be_repeated(error: GoogleAPICallError, batch: Sequence[str]) -> set[str] | None:
    """Return what of *batch* was not acknowledged and may be yet; None if none of it was.

    With exactly-once delivery an error tells of each letter: one whose lease has ended is lost to
    us for good, and a transient failure is worth another try.
    """
    told = {ack_id: why for ack_id, why in (error.metadata or {}).items() if ack_id in batch}
    if not told:
        return None
    return {ack_id for ack_id, why in told.items() if why.startswith("TRANSIENT_")}
