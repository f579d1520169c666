"""PipelinedWire: many messages to Redis in one round trip."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, Final

from kombu import Producer

from angzarr.adapters.celery.publish.batch_item import Leg, no_queue

#: kombu's batches shall not send by themselves.
_UNBOUNDED: Final = 10**9


class PipelinedWire:
    """Redis: one pipeline for many messages, and a reply to each command."""

    def __init__(self, channel: Any, producer: Any) -> None:
        self._channel = channel
        self._producer = producer

    def carry(self, legs: Sequence[Leg]) -> None:
        """Send *legs* in one round trip; raises the first error that Redis replied.

        Redis is asked first whether it is there, so that nothing is uncertain if it is away.
        """
        with self._channel.conn_or_acquire() as client:
            client.ping()
        with closing(self._channel.create_publish_batch(max_size=_UNBOUNDED)) as batch:
            commands = self._put(batch, legs)
            try:
                replies = iter(batch.pipeline.execute(raise_on_error=False))
            except BaseException:
                for leg in legs:
                    leg.lost = True
                raise
        refused: Exception | None = None
        for leg, count in zip(legs, commands, strict=True):
            errors = [reply for _ in range(count) if isinstance(reply := next(replies), Exception)]
            leg.confirmed = not errors and count > 0
            if not leg.confirmed and refused is None:
                refused = (
                    errors[0]
                    if errors
                    else no_queue(leg.options["exchange"], leg.options["routing_key"])
                )
        if refused is not None:
            raise refused

    def _put(self, batch: Any, legs: Sequence[Leg]) -> list[int]:
        """Put *legs* into the pipeline and return how many commands each of them is."""
        prepare = self._channel.prepare_message
        inlet = SimpleNamespace(prepare_message=prepare, basic_publish=batch.publish)
        producer = Producer(inlet, auto_declare=False)
        ends = [0]
        for leg in legs:
            producer.publish(leg.body, **leg.options)
            ends.append(len(batch.pipeline))
        return [end - begin for begin, end in pairwise(ends)]

    def tell(self, send: Callable[[Any], None]) -> None:
        """Send what *send* publishes in one round trip."""
        with self._producer.batch(max_size=_UNBOUNDED):
            send(self._producer)

    def close(self) -> None:
        """Do nothing: the channel is the producer's."""
