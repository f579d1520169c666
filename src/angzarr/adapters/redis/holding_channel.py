"""HoldingChannel: the fetched messages that a channel holds until it acknowledges or returns them.

`LinkedChannel` is how it talks to Redis: few connections, time-outs, nothing sent twice.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from typing import Any, cast

from kombu.transport import redis as stock
from kombu.utils.json import dumps
from redis.exceptions import ExecAbortError, OutOfMemoryError

from angzarr.adapters.redis.damaged import Damaged, OnDamaged
from angzarr.adapters.redis.fetcher import Fetcher
from angzarr.adapters.redis.keyspace_listener import KeyspaceListener
from angzarr.adapters.redis.link import Connection, Link
from angzarr.adapters.redis.session import AWAY, RENEWALS, Keys, Session
from angzarr.adapters.redis.step import Done, Ending, Fetched, flat
from angzarr.runtime.group_commit import GROUP_COMMIT


class LinkedChannel(stock.Channel):
    """kombu's channel with one client, where stock makes one for each command, and with limits."""

    #: Stock has none and waits for ever on a server that is gone.
    socket_timeout = 5.0
    socket_connect_timeout = 5.0
    _one_client: Any = None

    @cached_property
    def link(self) -> Link:
        """What this channel says to Redis outside of the steps."""
        return Link(self._make_connection)

    @contextmanager
    def conn_or_acquire(self, client: Any = None) -> Iterator[Any]:
        """Lend *client*, or the one client of this channel: stock makes a new one each time."""
        if client is None:
            if self._one_client is None:
                self._one_client = self._create_client()
            client = self._one_client
        yield client

    @cached_property
    def _make_connection(self) -> Callable[[], Connection]:
        pool = self.pool  # kept: Sentinel's connections ask it where the master is
        # What the tracking of reads tells comes on a second connection, as RESP 2 has it.
        settings = {**pool.connection_kwargs, "protocol": 2}
        return lambda: cast("Connection", pool.connection_class(**settings))

    def _disconnect_pools(self) -> None:
        self._one_client = None
        super()._disconnect_pools()

    def _size(self, queue: str) -> int:
        """How many messages wait, on a full server as well: stock asks in a transaction."""
        try:
            return int(super()._size(queue))
        except (OutOfMemoryError, ExecAbortError):
            names = [self._q_for_pri(queue, step) for step in self.priority_steps]
            asked = [("LLEN", f"{self.global_keyprefix}{name}") for name in names]
            return sum(map(int, self.link.execute_many(asked)))

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str, queue: str) -> None:
        """Bind *queue*; on a full server a worker starts all the same.

        What was bound before is bound, and a broadcast finds its way without a binding.
        """
        try:
            super()._queue_bind(exchange, routing_key, pattern, queue)
        except OutOfMemoryError:
            binding = (routing_key or "", pattern or "", queue or "")
            if queue not in self._fanout_queues and binding not in self.get_table(exchange):
                raise

    def _has_queue(self, queue: str, **_kwargs: Any) -> bool:
        """True if any list of *queue* exists; stock looks without the key prefix."""
        with self.conn_or_acquire() as client, client.pipeline() as pipe:
            for step in self.priority_steps:
                pipe.exists(f"{self.global_keyprefix}{self._q_for_pri(queue, step)}")
            return any(pipe.execute())

    def _put(self, queue: str, message: Any, **kwargs: Any) -> None:
        """Push *message*, never twice; raises redis-py's errors if it is not certain."""
        if kwargs.get("_publish_batch") is not None or queue in self._expires:
            super()._put(queue, message, **kwargs)
            return
        name = self._q_for_pri(queue, self._get_message_priority(message, reverse=False))
        self.link.execute_once("LPUSH", f"{self.global_keyprefix}{name}", dumps(message))


_log = logging.getLogger("angzarr.transport")


class HoldingChannel(LinkedChannel):
    """A channel with a session and a fetcher, begun when first needed."""

    from_transport_options = (
        *LinkedChannel.from_transport_options,
        "lease",
        "owner_lease",
        "on_damaged",
        "on_fetched",
        "on_returned",
        "on_put_back",
    )

    lease = 8.0
    owner_lease: Any = None
    on_damaged: OnDamaged | str | None = None
    on_fetched: Callable[[Sequence[Any]], None] | None = None
    on_returned: Callable[[Any], None] | None = None
    on_put_back: Callable[[Sequence[Any]], None] | None = None

    #: What fetches; None without a consumer.
    fetcher: Fetcher | None = None
    _session: Session | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._takers: dict[str, tuple[Any, bool]] = {}
        self._read_ahead: dict[str, Any] = {}
        self._strays: set[str] = set()
        super().__init__(*args, **kwargs)

    @property
    def is_fetching(self) -> bool:
        """Whether anybody consumes from a queue, fanout apart."""
        return self.fetcher is not None and bool(self._takers)

    def unserved(self, queue: str) -> str:
        """Say why nothing is fetched from *queue*; empty: it is, or Redis is away. For probes."""
        if queue in self.active_fanout_queues:
            return ""
        if queue not in self._takers or self.fetcher is None:
            return "nothing fetches from it"
        return self.fetcher.unserved()

    def away(self) -> str:
        """Say that Redis is away and tried again; empty: it is not, as far as is known."""
        lost = self.fetcher is not None and self.fetcher.is_lost
        return "Redis is away, and tried again" if lost else ""

    def let_go(self, tag: str, ending: Ending | None = None) -> None:
        """Let go of a message: with the loop's next step, or now if there is none.

        The claim that it names ends in the same step, before the message goes.
        """
        if self.closed:
            GROUP_COMMIT.write()
            _log.warning("acknowledged_too_late: its channel was closed and had given it back")
            return
        if self.fetcher is None:
            self._fetch_for_takers()
        fetcher = cast("Fetcher", self.fetcher)
        fetcher.let_go(tag, ending)
        if not self.connection.cycle.looped or not self._takers:
            fetcher.flush()
        self._tell_of_room()

    def give_back(self, tags: Sequence[str], *, last: bool = False) -> None:
        """Give messages back now; if Redis is away they come back with the end of the session."""
        if self._session is not None and tags:
            self._session.give_back(tags, last=last)
            self._tell_of_room()

    def _tell_of_room(self) -> None:
        """Let who waits for messages come round: there is room for more."""
        if self.is_fetching:
            self.connection.cycle.turn_soon(self.fetcher)

    def end_session(self) -> None:
        """End fetching and give back what was neither acknowledged nor even delivered."""
        if "_damaged" in vars(self):
            self._damaged.close()
        fetcher, session = self.fetcher, self._session
        self.fetcher = self._session = None
        rest: list[Done] = []
        if fetcher is not None:
            self._hang_up(fetcher)
            rest = fetcher.rest()
        if session is not None:
            session.end(flat(rest))
        elif fetcher is not None:
            self._put_back(list(fetcher.ready))

    def close(self) -> None:
        """Close; what is neither acknowledged nor delivered goes back, whatever it takes."""
        self.end_session()
        super().close()
        if "link" in vars(self):
            self.link.close()

    def give_back_strays(self) -> None:
        """Give back what this session holds and this process does not know of.

        Such are the messages of a fetch whose reply never came, or that could not be given back
        in time. What is seen twice, with time between, is a stray. Raises redis-py's errors.
        """
        session = self._session
        if session is None:
            return
        known = {*self.qos.delivered(), *self._read_ahead, *self._damaged.tags()}
        if self.fetcher is not None:
            known |= self.fetcher.tags()
        strays = {
            tag
            for tag in session.held(len(known))
            if tag not in known and not (self.is_fetching and self._may_bring(tag))
        }
        again = strays & self._strays
        self._strays = strays - again
        if again:
            _log.warning("strays_given_back: %d messages that no worker held", len(again))
            session.give_back(list(again))

    def _may_bring(self, tag: str) -> bool:
        return self.fetcher is not None and self.fetcher.may_bring(tag)

    def _put_back(self, messages: Sequence[Fetched]) -> None:
        """Put back what was fetched and not delivered; without a session it is just pushed."""
        self._show_put_back(messages)
        if self._session is not None:
            try:
                self.give_back([fetched.tag for fetched in messages])
            except AWAY as error:
                _log.warning("messages_not_given_back: they are as strays (%s)", error)
            return
        for fetched in reversed(messages):
            self.link.execute_once("RPUSH", fetched.origin, fetched.raw)

    def _show_put_back(self, messages: Sequence[Fetched]) -> None:
        """Let *on_put_back* see what *on_fetched* saw, before others can fetch it."""
        read = [self._read_ahead.pop(fetched.tag, None) for fetched in messages]
        shown = [message for message in read if message is not None]
        if self.on_put_back is None or not shown:
            return
        try:
            self.on_put_back(shown)
        except Exception:  # noqa: BLE001 - they go back whatever it says
            _log.exception("on_put_back_failed")

    def _hang_up(self, fetcher: Fetcher) -> None:
        try:
            fetcher.finish()
            fetcher.flush()
        except AWAY as error:
            fetcher.lost(error)
        if self.connection is not None:
            self.connection.cycle.forget(self)
        fetcher.listener.disconnect()

    @cached_property
    def _damaged(self) -> Damaged:
        return Damaged(self.link, self.global_keyprefix, self.on_damaged)

    def _begin_session(self) -> None:
        if self._session is not None or not self.ack_emulation:
            return
        own = f"{self.global_keyprefix}angzarr:owner:{_own_name()}"
        lease = self.owner_lease() if self.owner_lease is not None else own
        session = Session(
            Link(self._make_quick_connection),
            Keys.new(lease, f"{self.global_keyprefix}{self.unacked_key}:"),
            timedelta(seconds=self.lease),
            shared=self.owner_lease is not None,
        )
        session.start()
        self._session = session
        if self.fetcher is not None:
            self.fetcher.session = session

    def _make_quick_connection(self) -> Connection:
        """A connection that waits a fraction of a lease: a renewal must not be late."""
        connection: Any = self._make_connection()
        longest = self.lease / RENEWALS
        connection.socket_timeout = min(self.socket_timeout or longest, longest)
        connection.socket_connect_timeout = min(self.socket_connect_timeout or longest, longest)
        return cast("Connection", connection)

    def _fetch_for_takers(self) -> None:
        if self.fetcher is None:
            name = os.urandom(4).hex()
            listener = KeyspaceListener(self._make_connection)
            self.fetcher = Fetcher(listener, self.link, self._session, self, name)
        self.fetcher.look()

    def _after_fork(self) -> None:
        """Drop what is the parent's; see Link for its connections."""
        super()._after_fork()
        self.fetcher = self._session = None


def _own_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{os.urandom(6).hex()}"
