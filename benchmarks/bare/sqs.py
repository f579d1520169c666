"""SQS by hand: boto3, ten messages a call."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import boto3
from harness import servers

from angzarr.adapters.sqs.dead_letters import SqsDeadLetterQueue
from bare.side import Backend, Document

#: What SQS takes and gives at once.
BATCH = 10
REGION = "us-east-1"
#: The longest poll (seconds), where there is nothing yet.
POLL = 5


class BareSqs:
    """One client; an entry that is refused ends the run."""

    def __init__(self, endpoint: str) -> None:
        self._client: Any = boto3.session.Session().client(
            "sqs", endpoint_url=endpoint, region_name=REGION
        )
        self._urls: dict[str, str] = {}

    def put(self, name: str, documents: Sequence[Document]) -> None:
        """Send batches one after the other and look at every answer."""
        for at in range(0, len(documents), BATCH):
            entries = [
                {"Id": str(number), "MessageBody": json.dumps(document)}
                for number, document in enumerate(documents[at : at + BATCH])
            ]
            reply = self._client.send_message_batch(QueueUrl=self._url(name), Entries=entries)
            if reply.get("Failed"):
                msg = f"SQS refused {reply['Failed']}"
                raise RuntimeError(msg)

    def take(self, name: str, limit: int) -> int:
        """Receive until there are enough, then delete."""
        taken: list[Any] = []
        while len(taken) < limit:
            more = self._client.receive_message(
                QueueUrl=self._url(name), MaxNumberOfMessages=min(limit - len(taken), BATCH),
                WaitTimeSeconds=0 if taken else POLL,
            ).get("Messages", [])  # fmt: skip
            if not more:
                break
            taken += more
        for message in taken:
            json.loads(message["Body"])
        for at in range(0, len(taken), BATCH):
            entries = [
                {"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]}
                for number, message in enumerate(taken[at : at + BATCH])
            ]
            self._client.delete_message_batch(QueueUrl=self._url(name), Entries=entries)
        return len(taken)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _url(self, name: str) -> str:
        if name not in self._urls:
            self._urls[name] = self._client.get_queue_url(QueueName=name)["QueueUrl"]
        return self._urls[name]


@contextmanager
def backend() -> Iterator[Backend]:
    """Lend an account of LocalStack's."""
    endpoint, counts = servers.address(servers.SQS), {1: 200, 100: 2000}
    with patch.dict(os.environ, servers.aws_account()):
        yield Backend(
            told=f"SQS of LocalStack; boto3 {boto3.__version__}",
            ours=lambda: SqsDeadLetterQueue(region=REGION, endpoint_url=endpoint),
            theirs=lambda: BareSqs(endpoint),
            environment={
                "ANGZARR_DLQ__BACKEND": "sqs",
                "ANGZARR_DLQ__AWS_REGION": REGION,
                "ANGZARR_DLQ__AWS_ENDPOINT_URL": endpoint,
                "ANGZARR_DLQ__AWS_VISIBILITY": "20",
            },
            to_put=counts,
            to_take=counts,
        )
