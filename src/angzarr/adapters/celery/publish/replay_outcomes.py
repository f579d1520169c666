"""The broker queue that tells the analysis worker how replays ended."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from queue import Empty
from typing import Any, Final

from celery import Celery

from angzarr.adapters.celery.publish.publisher import AWAY, CeleryPublisher
from angzarr.dead_letters.replay_outcome import ReplayOutcome
from angzarr.errors import BrokerUnavailable, DecodeError
from angzarr.events.event import Message
from angzarr.events.headers import NoNumber, read_number
from angzarr.runtime.failures import LogThrottle
from angzarr.runtime.json_bounds import Bounds, check_json
from angzarr.runtime.text import printable

_log = logging.getLogger("angzarr.analysis")

#: The most that what is read parses to: there are a handful of texts in it.
_BOUNDS: Final = Bounds(nodes=1000, depth=10)
#: How long the next outcome may take once there was one, in seconds.
_AT_HAND = 0.01
#: How long RabbitMQ may take to answer what it must answer, in seconds. By itself kombu waits for
#: ever: one that came back ill would keep the analysis worker from its letters, and from ending.
_ANSWER: Final = 10
#: Seconds; what RabbitMQ sent to a receiver that is gone comes back after it, or two of it.
HEARTBEAT: Final = 60

#: Characters of what came in an outcome that a line of the log has.
LONGEST_SAID: Final = 200
_TEXT = ("letter_id", "outcome", "handler", "event_id")


class CeleryReplayOutcomes:
    """Both ends: workers put, the analysis worker receives. One receiver a process."""

    def __init__(self, app: Celery, publisher: CeleryPublisher, queue: str) -> None:
        self._app = app
        self._publisher = publisher
        self._connection: Any = None
        self._name = queue
        self._queue: Any = None
        self._taken: list[Any] = []
        self._seldom = LogThrottle()

    def put(self, outcome: ReplayOutcome) -> None:
        """Publish *outcome* and wait until the broker has confirmed it."""
        body = {name: getattr(outcome, name) for name in _TEXT} | {"replay": outcome.replay}
        if outcome.signature:
            body["signature"] = outcome.signature
        message = Message(
            body=json.dumps(body).encode(),
            content_type="application/json",
            content_encoding="utf-8",
            headers={},
            queue=self._name,
        )
        self._publisher.send(message, "", self._name, [self._app.amqp.queues.own(self._name)])

    def receive(self, *, limit: int, wait: timedelta) -> list[ReplayOutcome]:
        """Take up to *limit*; what cannot be read is logged and let go, the deadline covers it."""
        taken: list[ReplayOutcome] = []
        try:
            if self._connection is not None:
                self._connection.heartbeat_check()
            while len(taken) < limit:
                # Always blocking: a get that does not block asks the broker for another message
                # while those it pushed already wait in the buffer.
                patience = _AT_HAND if taken else max(wait.total_seconds(), _AT_HAND)
                message = self._open().get(timeout=patience)
                outcome = self._read(message)
                if outcome is not None:
                    taken.append(outcome)
                    self._taken.append(message)
        except Empty:
            pass
        except self._away() as error:
            self.close()
            msg = f"the broker did not answer for {self._name}: {error}"
            raise BrokerUnavailable(msg) from error
        return taken

    def done(self, outcomes: Sequence[ReplayOutcome]) -> None:
        """Let these outcomes go; one whose connection is gone comes back and changes nothing."""
        for outcome in outcomes:
            try:
                outcome.handle.ack()
                self._taken = [left for left in self._taken if left is not outcome.handle]
            except self._away() as error:
                _log.warning("replay_outcome_not_acknowledged: it will come again: %s", error)

    def close(self) -> None:
        """Give back the messages that were not finished."""
        connection, self._connection = self._connection, None
        queue, self._queue = self._queue, None
        taken, self._taken = self._taken, []
        if connection is None:
            return
        with suppress(*AWAY, *connection.connection_errors, *connection.channel_errors):
            # Not every transport gives back by itself what a closed channel held.
            for message in (*taken, *(queue.buffer if queue is not None else ())):
                message.requeue()
        connection.release()

    def _open(self) -> Any:
        if self._queue is None:
            self._connection = self._app.connection_for_read(heartbeat=HEARTBEAT)
            if self._connection.transport.driver_type == "amqp":
                self._connection.transport_options.setdefault("read_timeout", _ANSWER)
            self._connection.ensure_connection(max_retries=1, timeout=5)
            queue = self._app.amqp.queues.own(self._name)
            taken = self._connection.SimpleQueue(queue)
            # Not decoded by kombu, which raises what it cannot read and so reads it again for ever.
            taken.consumer.on_message = taken.buffer.append
            self._queue = taken
        return self._queue

    def _read(self, message: Any) -> ReplayOutcome | None:
        try:
            return _outcome_in(message)
        except (DecodeError, ValueError, TypeError, KeyError, RecursionError) as error:
            if self._seldom.now():  # a writer to the queue could flood the log
                said = printable(error)[:LONGEST_SAID]
                _log.error("replay_outcome_unreadable: %s", said)
            message.ack()
            return None

    def _away(self) -> tuple[type[BaseException], ...]:
        connection = self._connection or self._app.connection_for_read()
        return (*AWAY, *connection.connection_errors, *connection.channel_errors)


def _outcome_in(message: Any) -> ReplayOutcome:
    check_json(message.body, _BOUNDS)
    told = json.loads(message.body)
    text = {name: str(told[name]) for name in _TEXT}
    signature, replay = str(told.get("signature", "")), read_number(told["replay"])
    if isinstance(replay, NoNumber):
        msg = f"its replay is {replay.value}"
        raise DecodeError(msg)
    return ReplayOutcome(**text, replay=replay, signature=signature, handle=message)
