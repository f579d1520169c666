"""Workers on our Redis transport without threads and clocks: each thing happens when it is said.

A lease is an hour long and ends when a test says so (`Worker.end_lease`); it is renewed, others
are judged, and what could not be said at the end of a session is said again, by hand. Every
command a worker sends can be lost before or after Redis ran it, or arrive late.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import redis
from kombu import Consumer, Queue
from kombu.asynchronous import Hub, get_event_loop, set_event_loop
from redis.exceptions import ConnectionError as Lost

from adapters.redis_sides import connect
from angzarr.adapters.redis import holding_channel as channel_module
from angzarr.adapters.redis.session import Session

AWAY = (redis.RedisError, OSError)
#: Seconds: no lease ends by itself, and no turn takes longer.
AN_HOUR, A_TURN = 3600, 0.01
#: The commands that meet faults: those that change something, and their like.
FAULTY = {"EVALSHA", "EVAL", "LPUSH", "HMGET", "HKEYS", "HDEL"}


class HandSession(Session):
    """A session whose thread is the test."""

    #: Whether its end could not be said.
    leaving = False

    def start(self) -> None:
        self.renew()

    def _keep_leaving(self) -> None:
        self.leaving = True

    def leave(self) -> None:
        """Say the end again, as its thread would."""
        with suppress(*AWAY):
            self._leave()
            self.leaving = False


class Late(NamedTuple):
    """A command that the network holds back; its worker gave it up."""

    worker: Worker
    command: tuple[Any, ...]


class Network:
    """What becomes of the next commands of one worker."""

    def __init__(self, worker: Worker, hold_back: Callable[[Late], None]) -> None:
        self.fates: deque[str] = deque()
        self._worker, self._hold_back = worker, hold_back

    def wrap(self, make: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: _Line(make(), self)

    def meet(self, line: _Line, command: tuple[Any, ...]) -> bool:
        """Return whether *command* was dealt with; raises as redis-py does for a lost line."""
        fate = self.fates.popleft() if self.fates and command[0] in FAULTY else "fine"
        if fate == "fine":
            return False
        if fate == "late":
            self._hold_back(Late(self._worker, command))
        if fate in {"unheard", "cut"}:
            line.inner.send_command(*command)
            with suppress(redis.ResponseError):
                line.inner.read_response()
        if fate == "cut":  # it is found out when the reply is read
            line.inner._sock.shutdown(2)
            return True
        line.inner.disconnect()
        raise Lost(f"the line was {fate}")


class _Line:
    """A connection of redis-py through a network with fates."""

    def __init__(self, inner: Any, network: Network) -> None:
        self.inner, self._network = inner, network

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def send_command(self, *command: Any, **options: Any) -> None:
        self.inner.connect()
        if not self._network.meet(self, command):
            self.inner.send_command(*command, **options)


class Worker:
    """One process, in effect: a connection with a consuming channel."""

    def __init__(
        self,
        url: str,
        queues: list[str],
        on_message: Callable[[Worker, Any], None],
        hold_back: Callable[[Late], None],
        *,
        looped: bool,
        prefetch: int,
        **options: Any,
    ) -> None:
        self.network = Network(self, hold_back)
        self.alive, self.held = True, {}
        self.connection = connect(url, lease=AN_HOUR, **options)
        self.hub = Hub() if looped else None
        if self.hub is not None:
            before = get_event_loop()
            set_event_loop(None)
            self.connection.register_with_event_loop(self.hub)
            self.hub.propagate_errors = self.connection.connection_errors
            self._turns = self.hub.create_loop()
            set_event_loop(before)
        self.channel = self.connection.channel()
        self.channel._make_connection = self.network.wrap(self.channel._make_connection)
        self.consumer = Consumer(
            self.channel,
            [Queue(queue, channel=self.channel) for queue in queues],
            on_message=lambda message: on_message(self, message),
            prefetch_count=prefetch,
        )
        self.consumer.consume()
        self.session: HandSession = self.channel._session

    def __repr__(self) -> str:
        return f"<{'looped' if self.hub else 'draining'} {self.session.keys.session[-8:]}>"

    @property
    def hash(self) -> str:
        return self.session.keys.unacked

    def turn(self) -> None:
        """Do what a worker does in a moment in which its thread lives."""
        if self.session.renewed_at is None:
            with suppress(*AWAY):
                self.session.renew()
        fetcher = self.channel.fetcher
        if fetcher is not None:
            fetcher.look()
            fetcher._not_before = 0.0  # no chance, and no waiting for bells
        self._round()
        while fetcher is not None and fetcher._flight is not None:
            self._round()

    def _round(self) -> None:
        if self.hub is not None:
            self.hub.call_later(A_TURN, _nothing)
            next(self._turns)
            return
        faulty = bool(self.network.fates)
        try:
            self.connection.drain_events(timeout=A_TURN)
        except TimeoutError:
            pass
        except AWAY:
            if not faulty:
                raise

    def knows(self) -> set[str]:
        """Return the tags of all that this worker knows it holds."""
        qos, fetcher = self.channel.qos, self.channel.fetcher
        known = set(qos._delivered) - qos._dirty
        if fetcher is not None:
            known |= {one.tag for one in fetcher.ready} | {one.tag for one in fetcher._done}
        return known

    def end_lease(self, client: redis.Redis) -> None:
        """Let time go by for this worker's lease alone."""
        client.delete(self.session.keys.lease)
        client.zadd(self.session.keys.sessions, {self.session.keys.session: 0}, xx=True)

    def kill(self) -> None:
        """Let it be gone without a word."""
        self.alive = False
        self.channel.qos._on_collect.cancel()
        if self.channel.fetcher is not None:
            self.channel.connection.cycle.forget(self.channel)
            self.channel.fetcher.listener.disconnect()
        self.channel.link.close()
        self.channel.fetcher = self.channel._session = None
        self.connection.transport.close_connection = _nothing
        self._close_hub()

    def close(self) -> None:
        """Close it as a worker that stops does."""
        self.alive = False
        self.connection.release()
        self._close_hub()

    def _close_hub(self) -> None:
        if self.hub is not None:
            self.hub.close()


def take_time_in_hand() -> Callable[[], None]:
    """Give every new session into the test's hands; returns what undoes it."""
    before = channel_module.Session
    channel_module.Session = HandSession

    def undo() -> None:
        channel_module.Session = before

    return undo


def _nothing(*_: Any) -> None:
    """Wake a loop, or let nothing happen."""
