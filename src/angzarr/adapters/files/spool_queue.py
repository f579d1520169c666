"""A spool's folder as a dead-letter queue, for who moves letters out of one, or into one."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Final

from angzarr.adapters.files.spool import FolderOfLetters, Spool
from angzarr.dead_letters.codec import read_receipt
from angzarr.dead_letters.names import queue_name
from angzarr.dead_letters.queue import Outgoing, Receipt, Room
from angzarr.dead_letters.spool_forwarder import Spooled
from angzarr.errors import DeadLetterQueueUnavailable, DecodeError

_log = logging.getLogger("angzarr.dead_letters")

#: Seconds that a forwarder is waited for: longer than its batch takes while its queue is away.
PATIENCE: Final = 10.0
#: Seconds between two looks.
_PAUSE: Final = 0.1


class SpoolQueue:
    """A dead-letter queue in the folder at *path*; any thread may put, one may receive.

    From its first `receive` until it is closed no other process takes letters out of the folder:
    forwarders wait. What is damaged stays where it is. Without *create_missing* a folder that is
    missing is not made; one that is read from never is.
    """

    def __init__(self, path: Path, *, max_bytes: int, create_missing: bool = True) -> None:
        self._path = path
        self._spool = Spool(path, max_bytes=max_bytes)
        self._is_prepared = not create_missing
        self._folder = FolderOfLetters(path)
        self._lock = ExitStack()
        self._is_ours = False
        self._listed: deque[Spooled] = deque()
        self._held: set[str] = set()
        #: What is known of the files that were read: whose queue they would be in.
        self._queues: dict[str, str] = {}
        self._damaged: dict[str, str] = {}

    def put(self, letters: Sequence[Outgoing], /) -> list[str | None]:
        """Write *letters* as a `Spool` does, which refuses them where it is full."""
        if not self._is_prepared:
            self._spool.prepare()
            self._is_prepared = True
        return self._spool.put(letters)

    put_raw = put

    def receive(self, domains: Sequence[str], /, *, limit: int, wait: timedelta) -> list[Receipt]:
        """Take up to *limit* letters, the oldest first (see DeadLetterQueue).

        Raises DeadLetterQueueUnavailable without a folder, or if another process forwards from it.
        """
        if not domains:
            return []
        self._be_alone()
        wanted = {queue_name(domain): domain for domain in domains}
        ends = time.monotonic() + wait.total_seconds()
        while not (taken := self._take(wanted, limit)) and time.monotonic() < ends:
            time.sleep(_PAUSE)
        return taken

    def done(self, receipts: Sequence[Receipt], /) -> None:
        """Delete the files of *receipts*; those given back meanwhile are ignored."""
        ours = [one.handle for one in receipts if one.handle.name in self._held]
        self._folder.done(ours)
        for one in ours:
            self._held.discard(one.name)
            self._queues.pop(one.name, None)

    def waiting(self, domains: Sequence[str], /) -> dict[str, int]:
        """Count what was not taken; each file is read once for that (see CountsWaiting)."""
        there = [one for one in self._folder.waiting() if one.name not in self._held]
        counts = Counter(self._queue_of(one) for one in there)
        return {domain: counts[queue_name(domain)] for domain in domains}

    def damaged(self) -> Mapping[str, str]:
        """Which files are not what was written, and why (see TellsDamaged)."""
        return dict(self._damaged)

    def close(self) -> None:
        """Give back what was not done, and let others take letters again."""
        self._held.clear()
        self._listed.clear()
        self._is_ours = False
        self._lock.close()

    def _be_alone(self) -> None:
        ends = time.monotonic() + PATIENCE
        while not self._is_ours:
            with ExitStack() as attempt:
                self._is_ours = attempt.enter_context(self._folder.alone())
                if self._is_ours:
                    self._lock = attempt.pop_all()
                elif time.monotonic() >= ends:
                    msg = (
                        f"another process takes letters out of the spool at {self._path}:"
                        " stop it, or let it finish"
                    )
                    raise DeadLetterQueueUnavailable(msg)
                else:
                    time.sleep(_PAUSE)

    def _take(self, wanted: Mapping[str, str], limit: int) -> list[Receipt]:
        taken: list[Receipt] = []
        if not self._listed:  # listed once for many batches: there may be a hundred thousand
            self._listed.extend(one for one in self._folder.waiting() if self._may_come(one))
        room = Room(limit)
        while self._listed and room:
            one = self._listed.popleft()
            if self._queues.get(one.name) in {None, *wanted} and (read := self._read(one)):
                domain = wanted.get(self._queues[one.name])
                if domain is not None:
                    taken.append(replace(read, domain=domain))
                    room.take(len(read.raw))
        self._held.update(one.handle.name for one in taken)
        return taken

    def _may_come(self, one: Spooled) -> bool:
        return one.name not in self._held and one.name not in self._damaged

    def _queue_of(self, one: Spooled) -> str | None:
        """Whose queue *one* would be in; None where that cannot be said."""
        if one.name not in self._queues and one.name not in self._damaged:
            self._read(one)
        return self._queues.get(one.name)

    def _read(self, one: Spooled) -> Receipt | None:
        """The content of the file; None where it is gone, or damaged, which is logged once."""
        try:
            content = self._folder.content(one)
            if content is None:
                return None
            domain = content.domain
            receipt = read_receipt(domain or "", content.body, content.content_type, one)
            if domain is None:
                domain = _domain_of(receipt)
        except DecodeError as error:
            if one.name not in self._damaged:
                _log.error("spool_letter_damaged: %s stays where it is: %s", one.name, error)
            self._damaged[one.name] = str(error)
            return None
        self._queues[one.name] = queue_name(domain)
        return receipt


def _domain_of(receipt: Receipt) -> str:
    """The domain that a letter names; raises DecodeError where it is none."""
    if receipt.letter is None:
        raise DecodeError(receipt.problem)
    return receipt.letter.domain
