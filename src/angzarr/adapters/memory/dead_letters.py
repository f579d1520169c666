"""Dead letters in this process (`channel`): for stand-alone mode, demos and tests.

Letters live as long as the process, and a forked child has a channel of its own.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from angzarr.dead_letters.codec import Encoded, encode, read_receipt
from angzarr.dead_letters.depth import QueueDepth
from angzarr.dead_letters.letter import DeadLetter
from angzarr.dead_letters.names import queue_name
from angzarr.dead_letters.queue import NAME_PREFIX, RawLetter, Receipt, Room


class _Taken(NamedTuple):
    queue: str
    encoded: Encoded


class LetterChannel:
    """Queues by name, shared by every MemoryDeadLetterQueue of one channel."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.queues: dict[str, deque[Encoded]] = {}

    def queue(self, name: str) -> deque[Encoded]:
        """The queue *name*, created where it is missing; call it under `changed`."""
        return self.queues.setdefault(name, deque())


_LOG: Final = logging.getLogger(__name__)
_CHANNELS: Final[dict[str, LetterChannel]] = {}
_CHANNELS_LOCK: Final = threading.Lock()


def channel(name: str) -> LetterChannel:
    """This process's channel *name*."""
    with _CHANNELS_LOCK:
        return _CHANNELS.setdefault(name, LetterChannel())


def forget_channel(name: str) -> None:
    """Let the channel *name* go with all its letters."""
    with _CHANNELS_LOCK:
        _CHANNELS.pop(name, None)


class MemoryDeadLetterQueue:
    """A dead-letter queue on a named channel of this process; safe from any thread."""

    def __init__(self, name: str = "default") -> None:
        self._channel = channel(name)
        self._taken: dict[int, _Taken] = {}
        self._numbers = itertools.count()

    def put(self, letters: Sequence[DeadLetter], /) -> list[str | None]:
        """Append *letters*; nothing is refused."""
        return self._append([(letter.domain, encode(letter)) for letter in letters])

    def put_raw(self, letters: Sequence[RawLetter], /) -> list[str | None]:
        """Append bytes; nothing is refused (see CarriesRaw)."""
        return self._append([(one.domain, encode(one)) for one in letters])

    def waiting(self, domains: Sequence[str], /) -> dict[str, int]:
        """The number of letters that wait (see CountsWaiting)."""
        with self._channel.changed:
            return {name: len(self._channel.queues.get(queue_name(name), ())) for name in domains}

    def depths(self, domains: Sequence[str], /) -> dict[str, QueueDepth]:
        """Count the same, and say since when the first waits (see TellsDepth)."""
        return {domain: self._depth(domain) for domain in domains}

    def look(self) -> list[Receipt]:
        """The letters that wait, queue by queue; they stay where they are."""
        with self._channel.changed:
            found = [(name, one) for name, kept in self._channel.queues.items() for one in kept]
        return [
            read_receipt(name.removeprefix(NAME_PREFIX), one.body, one.content_type, None)
            for name, one in found
        ]

    def receive(self, domains: Sequence[str], /, *, limit: int, wait: timedelta) -> list[Receipt]:
        """Take up to *limit* letters, one from each domain in turn."""
        with self._channel.changed:
            self._channel.changed.wait_for(
                lambda: any(self._channel.queue(queue_name(domain)) for domain in domains),
                timeout=wait.total_seconds(),
            )
            taken = list(self._take(domains, Room(limit)))
        return [
            read_receipt(domain, encoded.body, encoded.content_type, handle)
            for domain, encoded, handle in taken
        ]

    def done(self, receipts: Sequence[Receipt], /) -> None:
        """Forget these letters."""
        with self._channel.changed:
            for receipt in receipts:
                self._taken.pop(receipt.handle, None)

    def close(self) -> None:
        """Put what was not done back in front of its queue, in order."""
        with self._channel.changed:
            for taken in reversed(self._taken.values()):
                self._channel.queue(taken.queue).appendleft(taken.encoded)
            self._taken.clear()
            self._channel.changed.notify_all()

    def _depth(self, domain: str) -> QueueDepth:
        with self._channel.changed:
            kept = self._channel.queues.get(queue_name(domain), ())
            first, count = (kept[0] if kept else None), len(kept)
        if first is None:
            return QueueDepth(0, 0)
        letter = read_receipt(domain, first.body, first.content_type, None).letter
        return QueueDepth(count, count, letter.sent_to_dlq_at if letter else None)

    def _append(self, letters: Sequence[tuple[str, Encoded]]) -> list[str | None]:
        with self._channel.changed:
            for domain, encoded in letters:
                self._channel.queue(queue_name(domain)).append(encoded)
            self._channel.changed.notify_all()
        return [None] * len(letters)

    def _take(self, domains: Sequence[str], room: Room) -> Iterator[tuple[str, Encoded, int]]:
        waiting = list(domains)
        while waiting and room:
            for domain in tuple(waiting):
                if not room:
                    break
                queue = self._channel.queue(queue_name(domain))
                if not queue:
                    waiting.remove(domain)
                    continue
                handle = next(self._numbers)
                self._taken[handle] = _Taken(queue_name(domain), queue.popleft())
                room.take(len(self._taken[handle].encoded.body))
                yield domain, self._taken[handle].encoded, handle


class DiscardedDeadLetterQueue:
    """No dead-letter queue (`none`): every letter is logged and lost, as the settings ask."""

    def put(self, letters: Sequence[DeadLetter], /) -> list[str | None]:
        """Log *letters* and say they are safe."""
        for letter in letters:
            _LOG.warning(
                "dead_letter_discarded: %s of %s, as accept_loss says", letter.id, letter.handler
            )
        return [None] * len(letters)

    def receive(self, domains: Sequence[str], /, *, limit: int, wait: timedelta) -> list[Receipt]:  # noqa: ARG002  the port's
        """Wait; there is never anything."""
        threading.Event().wait(wait.total_seconds())
        return []

    def done(self, receipts: Sequence[Receipt], /) -> None:
        """Do nothing: there are none."""

    def close(self) -> None:
        """Do nothing."""
