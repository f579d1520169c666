"""Errors of SQS that LocalStack cannot be made to give, answered where the request would be sent.

botocore signs, sends, parses and raises as ever; only the socket is not used.
"""

from __future__ import annotations

import io
import json
from collections import Counter

from botocore.awsrequest import AWSResponse

from angzarr.adapters.sqs.transport import Channel

#: Error code → HTTP status, as AWS documents it.
STATUS = {
    "AccessDenied": 403,
    "ExpiredToken": 403,
    "InvalidClientTokenId": 403,
    "KmsDisabled": 400,
    "QueueDeletedRecently": 400,
    "RequestThrottled": 403,
    "ServiceUnavailable": 503,
    "ThrottlingException": 400,
}


class Faults:
    """What every client of our transport is answered from now on.

    `code` is the error, None: the server answers; `queue` the only queue that it is about, and
    `after` how many messages are let through before.
    """

    def __init__(self, monkeypatch):
        self.code, self.queue, self.after = None, None, 0
        self.operation = "SendMessage"
        self.asked: Counter[str] = Counter()
        real = Channel._new_boto_client

        def new(channel, *args, **options):
            client = real(channel, *args, **options)
            client.meta.events.register("before-send.sqs", self._answer)
            return client

        monkeypatch.setattr(Channel, "_new_boto_client", new)

    def _answer(self, request, **_):
        operation = text(request.headers["X-Amz-Target"]).rpartition(".")[2]
        queue = json.loads(request.body).get("QueueUrl", "").rpartition("/")[2]
        self.asked[operation] += 1
        if self.code is None or operation != self.operation or self.queue not in (None, queue):
            return None
        if self.after:
            self.after -= 1
            return None
        body = json.dumps({"__type": f"com.amazonaws.sqs#{self.code}", "message": "so be it"})
        headers = {"Content-Type": "application/x-amz-json-1.0"}
        return AWSResponse(request.url, STATUS[self.code], headers, _Raw(body.encode()))


class _Raw(io.BytesIO):
    def stream(self):
        yield self.read()


def text(value):
    return value.decode() if isinstance(value, bytes) else value
