"""Leases of received letters, renewed by a thread while their receipts are in hand.

SQS hides a received letter for a while. A letter that came again too early would be analysed twice.
One that stayed hidden for no reason would hold up its group in a FIFO queue.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from angzarr.adapters.sqs.client import FAILURES, reason_of
from angzarr.adapters.sqs.letter_messages import BATCH
from angzarr.runtime.failures import LogThrottle

_LOG: Final = logging.getLogger(__name__)

#: The longest SQS hides a message, counted from when it was received: 12 hours, in seconds.
LONGEST: Final = 12 * 3600.0
#: A lease is renewed when this share of it is over, so that several more tries fit in.
RENEWED_AFTER: Final = 1 / 3
#: After a try that failed the next comes when this share of a lease has passed.
TRIED_AGAIN_AFTER: Final = 1 / 10
#: Least seconds between two tries.
PAUSE: Final = 0.1

#: Hides the messages of some entries, all of one queue, anew; returns SQS's reply.
Change: TypeAlias = Callable[[str, list[Any]], Mapping[str, Any]]


class SqsHandle:
    """The handle of a receipt: while it is referenced its letter stays hidden."""

    __slots__ = ("__weakref__", "lease")

    def __init__(self, lease: Lease) -> None:
        self.lease = lease


@dataclass(eq=False, slots=True, kw_only=True)
class Lease:
    """One received message; times are monotonic seconds."""

    url: str
    receipt: str
    began: float
    ends: float
    renew_at: float
    holder: Callable[[], SqsHandle | None] = lambda: None


def extension(age: float, visibility: int) -> int:
    """For how many seconds a message that was received *age* ago may be hidden now."""
    return max(0, min(visibility, int(LONGEST - age)))


class Leases:
    """The letters received and not let go; safe from any thread, of one process."""

    def __init__(
        self,
        change: Change,
        visibility: int,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._change = change
        self._visibility = visibility
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._held: dict[Lease, None] = {}
        self._seldom = LogThrottle()

    def hold(self, url: str, receipt: str, asked_at: float) -> SqsHandle:
        """Count a message, received by a request made at *asked_at*, among those held."""
        lease = Lease(
            url=url,
            receipt=receipt,
            began=asked_at,
            ends=asked_at + self._visibility,
            renew_at=asked_at + self._visibility * RENEWED_AFTER,
        )
        handle = SqsHandle(lease)
        lease.holder = weakref.ref(handle)
        with self._lock:
            self._held[lease] = None
        return handle

    def held(self, handles: Iterable[object]) -> list[Lease]:
        """Those of *handles* that were not let go."""
        leases = [handle.lease for handle in handles if isinstance(handle, SqsHandle)]
        with self._lock:
            return [lease for lease in dict.fromkeys(leases) if lease in self._held]

    def let_go(self, leases: Iterable[Lease]) -> None:
        """Renew *leases* no more."""
        with self._lock:
            for lease in leases:
                self._held.pop(lease, None)

    def let_all_go(self) -> list[Lease]:
        """Renew none any more; return those that still are hidden."""
        now = self._monotonic()
        with self._lock:
            running = [lease for lease in self._held if lease.ends > now]
            self._held.clear()
        return running

    def renew(self) -> float | None:
        """Renew what is due; return the seconds until more may be, None where nothing is held.

        What is received meanwhile is due no earlier than that.
        """
        now = self._monotonic()
        with self._lock:
            held = list(self._held)
        self.let_go(one for one in held if one.holder() is None and one.ends <= now)
        due = [one for one in held if one.renew_at <= now and one.holder() is not None]
        for url, leases in by_queue(due):
            self._renew_batch(url, leases)
        with self._lock:
            times = [_wakes_at(lease) for lease in self._held]
        longest = self._visibility * RENEWED_AFTER
        return max(PAUSE, min(min(times) - self._monotonic(), longest)) if times else None

    def _renew_batch(self, url: str, leases: Sequence[Lease]) -> None:
        """Ask for more time; what is not given is asked for again until the lease has ended."""
        now = self._monotonic()
        entries = [
            entry | {"VisibilityTimeout": extension(now - lease.began, self._visibility)}
            for entry, lease in zip(entries_of(leases), leases, strict=True)
        ]
        given = self._asked(url, [entry for entry in entries if entry["VisibilityTimeout"]])
        for entry, lease in zip(entries, leases, strict=True):
            self._note(lease, now, given.get(entry["Id"], 0))

    def _asked(self, url: str, entries: list[Any]) -> dict[str, int]:
        """For how many seconds each entry is hidden; nothing where SQS gave no answer."""
        if not entries:
            return {}
        try:
            reply = self._change(url, entries)
        except FAILURES as error:
            if self._seldom.now():
                told = "letter_leases_not_renewed: %d dead letters may come again: %s"
                _LOG.warning(told, len(entries), reason_of(error))
            return {}
        taken = {entry["Id"] for entry in reply.get("Successful", ())}
        return {one["Id"]: one["VisibilityTimeout"] for one in entries if one["Id"] in taken}

    def _note(self, lease: Lease, now: float, given: int) -> None:
        if given:
            lease.ends = max(lease.ends, now + given)
        pause = given * RENEWED_AFTER if given else self._visibility * TRIED_AGAIN_AFTER
        longest = lease.began + LONGEST - 1  # SQS counts whole seconds
        lease.renew_at = now + pause if now < lease.ends < longest else float("inf")


def _wakes_at(lease: Lease) -> float:
    return lease.ends if lease.holder() is None else lease.renew_at


def by_queue(leases: Iterable[Lease]) -> Iterator[tuple[str, list[Lease]]]:
    """*leases* in batches that SQS takes, each of one queue, in their order."""
    by_url: dict[str, list[Lease]] = {}
    for lease in leases:
        by_url.setdefault(lease.url, []).append(lease)
    for url, own in by_url.items():
        for start in range(0, len(own), BATCH):
            yield url, own[start : start + BATCH]


def entries_of(leases: Sequence[Lease]) -> list[Any]:
    """*leases* as the entries of a batch."""
    return [{"Id": str(at), "ReceiptHandle": one.receipt} for at, one in enumerate(leases)]


class LeaseRenewal:
    """Calls *renew*, which says in how many seconds again, None: not until `begin`.

    A failure that *renew* does not know is logged, and it is called again after *pause* seconds.
    """

    def __init__(self, renew: Callable[[], float | None], pause: float) -> None:
        self._renew = renew
        self._pause = pause
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._wanted = False

    def begin(self) -> None:
        """See to it that *renew* is called from now on."""
        with self._lock:
            self._wanted = True
            if self._thread is not None:
                return
            thread = threading.Thread(
                target=self._run, args=(self._stop,), name="angzarr-sqs-leases", daemon=True
            )
            try:
                thread.start()
            except RuntimeError:  # no more threads: the letters come again, which is harmless
                return
            self._thread = thread

    def stop(self, patience: float) -> None:
        """End the thread, waiting *patience* seconds for a call that is under way."""
        with self._lock:
            thread, self._thread = self._thread, None
            self._stop.set()
            self._stop = threading.Event()
        if thread is not None:
            thread.join(patience)

    def _run(self, stop: threading.Event) -> None:
        wait: float | None = 0.0
        while not stop.wait(wait):
            self._wanted = False
            wait = self._called()
            if wait is None:
                if self._is_over(stop):
                    return
                wait = 0.0

    def _called(self) -> float | None:
        try:
            return self._renew()
        except Exception:  # noqa: BLE001 - the leases of other letters must not end with it
            _LOG.exception("letter_leases_not_renewed: trying again")
            return self._pause

    def _is_over(self, stop: threading.Event) -> bool:
        """True if `begin` was not called meanwhile; the next call then starts a thread."""
        with self._lock:
            if stop.is_set():
                return True
            if not self._wanted:
                self._thread = None
            return not self._wanted
