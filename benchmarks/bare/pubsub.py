"""Pub/Sub by hand: publish futures awaited, a streaming pull, each acknowledgement answered."""

from __future__ import annotations

import json
import os
import queue
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any
from unittest.mock import patch

from google.cloud import pubsub_v1
from harness import servers

from angzarr.adapters.pubsub.dead_letters import PubSubDeadLetterQueue
from bare.side import Backend, Document

PROJECT = "bench"
#: Seconds without a confirm or a message after which a run is void.
PATIENCE = 30.0
#: Letters of a run that takes them: Google's fake hands out fewer than a hundred a second.
TO_TAKE = 300
#: Messages handed out ahead, as many as are taken at once at most.
PREFETCH = 100


class BarePubSub:
    """A publisher and a subscriber as their documentation shows them."""

    def __init__(self) -> None:
        self._publisher: Any = pubsub_v1.PublisherClient()
        self._subscriber: Any = pubsub_v1.SubscriberClient()
        self._came: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._stream: Any = None

    def put(self, name: str, documents: Sequence[Document]) -> None:
        """Publish, then wait for every message id."""
        topic = self._publisher.topic_path(PROJECT, name)
        futures = [
            self._publisher.publish(topic, json.dumps(document).encode()) for document in documents
        ]
        for future in futures:
            future.result(PATIENCE)

    def take(self, name: str, limit: int) -> int:
        """Take what the stream brought and acknowledge it in one request."""
        path = self._subscriber.subscription_path(PROJECT, name)
        if self._stream is None:
            self._stream = self._subscriber.subscribe(
                path, self._came.put, flow_control=pubsub_v1.types.FlowControl(PREFETCH)
            )
        messages = [self._came.get(timeout=PATIENCE)]
        while len(messages) < limit and not self._came.empty():
            messages.append(self._came.get())
        for message in messages:
            json.loads(message.data)
        ids = [message.ack_id for message in messages]
        self._subscriber.acknowledge(subscription=path, ack_ids=ids)
        for message in messages:
            message.drop()  # the client shall renew its lease no more
        return len(messages)

    def close(self) -> None:
        """End the stream and close the clients."""
        if self._stream is not None:
            self._stream.cancel()
            self._stream.result(PATIENCE)
        self._subscriber.close()
        self._publisher.stop()


@contextmanager
def backend() -> Iterator[Backend]:
    """Lend the running emulator, which keeps messages in memory."""
    emulator = {"PUBSUB_EMULATOR_HOST": servers.address(servers.PUBSUB)}
    with patch.dict(os.environ, emulator):
        yield Backend(
            told=(
                "Pub/Sub, Google's fake, which hands out under a hundred letters a second;"
                f" google-cloud-pubsub {version('google-cloud-pubsub')}"
            ),
            ours=lambda: PubSubDeadLetterQueue(PROJECT),
            theirs=BarePubSub,
            environment={
                **emulator,
                "ANGZARR_DLQ__BACKEND": "pubsub",
                "ANGZARR_DLQ__PUBSUB_PROJECT": PROJECT,
            },
            to_put={1: 200, 100: 3000},
            to_take=dict.fromkeys((1, 100), TO_TAKE),
        )
