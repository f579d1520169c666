"""Channel: kombu's Redis channel, with fetching, acknowledging and publishing by our own means.

Fanout, remote control, bindings, purge, TLS, credentials and key prefix are stock kombu's.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from itertools import takewhile
from queue import Empty
from typing import Any

from kombu.utils.json import loads
from kombu.utils.scheduling import priority_cycle, round_robin_cycle, sorted_cycle

from angzarr.adapters.redis.damaged import read
from angzarr.adapters.redis.fetcher import NUMBERS, Fetcher, keys_of
from angzarr.adapters.redis.holding_channel import HoldingChannel
from angzarr.adapters.redis.link import Script
from angzarr.adapters.redis.server import check_server
from angzarr.adapters.redis.session import AWAY
from angzarr.adapters.redis.step import (
    STEP,
    Fetched,
    Lists,
    deaths,
    held,
    while_read,
    without_deaths,
)
from angzarr.adapters.redis.unacked import FETCHED, Unacked
from angzarr.delivery.unreadable import ReadersDied, ReadMode, reading_after
from angzarr.events.received import CHECKED
from angzarr.runtime.backlog import has_backlog
from angzarr.runtime.failures import is_machine_fault

_log = logging.getLogger("angzarr.transport")

_NOTE = Script("note.lua", frees=True)

#: The parts of a step's reply that carry no message.
_NO_MESSAGE = 5
#: The orders whose whole turn one step can take.
KNOWN_ORDERS = (round_robin_cycle, priority_cycle, sorted_cycle)
#: Seconds after which no more messages are delivered in this turn.
LONGEST_DELIVERY = 0.005
#: Messages that one step fetches at most, whatever the prefetch limit.
MOST_A_STEP = 64


class Channel(HoldingChannel):
    """A channel that fetches atomically into a session of its own.

    Options besides stock's: ``lease`` (seconds without a sign of life after which others take
    this worker for dead), ``owner_lease`` (a callable that returns the key of a lease that this
    process keeps anyway), ``on_damaged`` (takes what cannot be read: raw bytes, queue, error),
    ``on_fetched`` (takes the messages of one step together, before they are delivered),
    ``on_put_back`` (takes those of them that are put back undelivered, before they are) and
    ``on_returned`` (takes one that came back from a worker that died, to read its body while it
    is written down that this is done).
    """

    QoS = Unacked

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._name_of_gets = os.urandom(4).hex()
        super().__init__(*args, **kwargs)
        try:
            check_server(self)
        except BaseException:
            self.connection.cycle.discard(self)
            self._disconnect_pools()
            self._close_clients()
            raise

    # -- consuming -----------------------------------------------------------------------------

    def basic_consume(
        self,
        queue: str,
        no_ack: bool,  # noqa: FBT001 - kombu's signature
        callback: Any,
        consumer_tag: str,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        """Consume from *queue*: from the next turn of the loop, or of `drain_events`, on."""
        super().basic_consume(queue, no_ack, callback, consumer_tag, *args, **kwargs)
        if queue in self.active_fanout_queues:
            return
        self._takers[queue] = (callback, no_ack)
        if not no_ack:
            self._begin_session()
        self._fetch_for_takers()

    def _basic_cancel(self, consumer_tag: str) -> None:
        queue = self._tag_to_queue.get(consumer_tag)
        super()._basic_cancel(consumer_tag)
        if self._takers.pop(queue, None) is None or self.fetcher is None:
            return
        if not self._takers:
            # No more steps are taken: what was fetched for nothing must not be kept.
            self._hang_up(self.fetcher)
        left = [fetched for fetched in self.fetcher.ready if fetched.queue not in self._takers]
        for fetched in left:
            self.fetcher.ready.remove(fetched)
        self._put_back(left)

    def room(self) -> int:
        """How many messages the consumers can take now."""
        if self._damaged.is_full or not self.qos.can_consume():
            return 0
        left = self.qos.can_consume_max_estimate()
        if left is None:  # no limit; without a loop, messages are fetched as they are asked for
            left = MOST_A_STEP if self.connection.cycle.looped else 1
        elif "can_consume" in vars(self.qos):
            left = 1  # worker_disable_prefetch: Celery says after each message whether to go on
        if type(self._queue_cycle) not in KNOWN_ORDERS:
            left = min(left, 1)  # an order of the user's own is asked for each message
        held = len(self.fetcher.ready) if self.fetcher is not None else 0
        room: int = min(left - held, MOST_A_STEP)
        return max(room, 0)

    def is_busy(self) -> bool:
        """True if the consumers have enough to do for the next milliseconds."""
        return has_backlog(self.qos.prefetch_count)

    def lists(self) -> Lists:
        """The lists to fetch from, in the order of this turn."""
        queues = [queue for queue in self._queue_cycle.consume(len(self.active_queues)) if queue]
        names = [self._name(queue, step) for step in self.priority_steps for queue in queues]
        return Lists(names, queues, fair=type(self._queue_cycle) is round_robin_cycle)

    def deliver(self, most: int) -> int:
        """Hand up to *most* fetched messages to their consumers; return how many there were.

        What a consumer raises leaves the others fetched and undelivered. So does one that runs
        the task itself (solo) and takes long: its acknowledgement must not wait for the next.
        """
        fetcher, delivered = self.fetcher, 0
        if fetcher is not None and fetcher.ready and self.on_fetched is not None:
            self._show(self.on_fetched, fetcher)
        until = time.monotonic() + LONGEST_DELIVERY
        while fetcher is not None and fetcher.ready and delivered < most:
            self._deliver(fetcher.ready.popleft())
            delivered += 1
            if time.monotonic() > until:
                break
        return delivered

    def basic_get(self, queue: str, no_ack: bool = False, **_kwargs: Any) -> Any:  # noqa: FBT001, FBT002 - kombu's
        """One message of *queue*, or None."""
        if not no_ack and self.ack_emulation:
            self._begin_session()
        names = [self._name(queue, step) for step in self.priority_steps]
        owned = not no_ack and self.ack_emulation
        while not self._damaged.is_full and (fetched := self._get_one(queue, names, owned=owned)):
            message = self._read(fetched)
            if message is not None:
                if not no_ack:
                    self.qos.append(message, fetched.tag)
                return message
        return None

    # ------------------------------------------------------------------------------------------

    def _name(self, queue: str, priority: int) -> str:
        return f"{self.global_keyprefix}{self._q_for_pri(queue, priority)}"

    def _deliver(self, fetched: Fetched) -> None:
        taker = self._takers.get(fetched.queue)
        if taker is None:
            self._put_back([fetched])
            return
        message = self._read_ahead.pop(fetched.tag, None) or self._read(fetched)
        if message is None:
            return
        callback, no_ack = taker
        self._queue_cycle.rotate(fetched.queue)
        if not no_ack:
            self.qos.append(message, fetched.tag)
        elif self._session is not None:
            self.let_go(fetched.tag)
        callback(message)

    def _show(self, on_fetched: Callable[[Sequence[Any]], None], fetcher: Fetcher) -> None:
        """Let *on_fetched* see what it has not seen; what it raises stops nothing."""
        shown = []
        # What it has seen stands before the rest.
        fresh = takewhile(lambda one: one.tag not in self._read_ahead, reversed(fetcher.ready))
        for fetched in reversed(tuple(fresh)):
            _, no_ack = self._takers.get(fetched.queue, (None, True))
            if no_ack:
                continue
            message = self._read(fetched)
            if message is None:
                fetcher.ready.remove(fetched)
                continue
            self._read_ahead[fetched.tag] = message
            shown.append(message)
        if not shown:
            return
        try:
            on_fetched(shown)
        except Exception:  # noqa: BLE001 - each message is delivered without it
            _log.exception("on_fetched_failed")

    def _read(self, fetched: Fetched) -> Any:
        """The message, or None if it is damaged and taken care of."""
        died = deaths(fetched.raw)
        match reading_after(died):
            case ReadMode.WITH_OTHERS:
                return self._read_as_it_is(fetched)
            case ReadMode.ALONE:
                return self._read_returned(fetched)
            case ReadMode.NEVER:
                bare = fetched._replace(raw=without_deaths(fetched.raw))
                self._damaged.take(bare, self._session, ReadersDied(died, died - 1))
                return None

    def _read_returned(self, fetched: Fetched) -> Any:
        """Read what came back from a worker that died, and write down meanwhile that it is done.

        None as well if it is not ours any more. Without a session it would not be given back.
        """
        bare = fetched._replace(raw=without_deaths(fetched.raw))
        if not self._note(fetched.tag, while_read(fetched)):
            return None
        message = self._read_as_it_is(bare)
        if message is not None and self.on_returned is not None:
            try:
                self.on_returned(message)
            except Exception as error:  # noqa: BLE001 - the next reader of the message will find out
                _log.debug("on_returned failed: %r", error)
        return message if self._note(fetched.tag, held(fetched)) else None

    def _note(self, tag: str, value: bytes | None) -> bool:
        """Write down *value* for what the session holds as *tag*; False: it holds no such.

        The message is read even if Redis is away.
        """
        if self._session is None or value is None:
            return True
        try:
            return bool(self.link.run(_NOTE, (self._session.keys.unacked,), tag, value))
        except AWAY as error:
            _log.debug("reading_not_noted: %r", error)
            return True

    def _read_as_it_is(self, fetched: Fetched) -> Any:
        try:
            message = self.Message(read(fetched.raw, loads), channel=self)
        except Exception as error:  # an unreadable body raises anything
            if is_machine_fault(error):
                raise
            self._damaged.take(fetched, self._session, error)
            return None
        message.delivery_tag = fetched.tag
        setattr(message, FETCHED, True)
        setattr(message, CHECKED, True)
        return message

    def _get_one(self, queue: str, names: list[str], *, owned: bool) -> Fetched | None:
        token = f"{self._name_of_gets}:{next(NUMBERS)}"
        session = self._session if owned else None
        name = session.keys.session if session is not None else ""
        reply = self.link.run(STEP, (*keys_of(session), *names), 1, token, 1, "first", name)
        if reply[0] == b"no lease" and session is not None:
            session.renew()
            return self._get_one(queue, names, owned=owned)
        if queue in self._expires:
            with self.conn_or_acquire() as client:
                self._maybe_update_queues_expire(client, queue)
        if len(reply) == _NO_MESSAGE:
            return None
        return Fetched(f"{token}:1", queue, reply[-1], names[reply[-2] - 1])

    def _get(self, queue: str) -> Any:
        message = self.basic_get(queue, no_ack=True)
        if message is None:
            raise Empty
        return message._raw  # noqa: SLF001 - kombu's own name for it
