"""LinkedChannel: how a channel talks to Redis: few connections, time-outs, nothing sent twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, cast

from kombu.transport import redis as stock
from kombu.utils.json import dumps
from redis.exceptions import ExecAbortError, OutOfMemoryError

from angzarr.adapters.redis.link import Connection, Link


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
        """Return how many messages wait, on a full server as well: stock asks in a transaction."""
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
        """Tell whether any list of *queue* exists; stock looks without the key prefix."""
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
