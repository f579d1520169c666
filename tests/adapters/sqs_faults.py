"""Errors of AWS that LocalStack cannot be made to give, answered where the request would be sent.

botocore signs, sends, parses and raises as ever; only the socket is not used.
"""

from __future__ import annotations

import io
import json
from collections import Counter

from botocore.awsrequest import AWSResponse
from botocore.exceptions import EndpointConnectionError

from angzarr.adapters.sqs.client import Service
from angzarr.adapters.sqs.transport import SqsChannel

#: Error code → HTTP status, as AWS documents it.
STATUS = {
    "AccessDenied": 403,
    "AuthorizationError": 403,
    "ExpiredToken": 403,
    "InvalidClientTokenId": 403,
    "KmsDisabled": 400,
    "QueueDeletedRecently": 400,
    "RequestThrottled": 403,
    "ServiceUnavailable": 503,
    "Throttling": 400,
    "ThrottlingException": 400,
}


class Faults:
    """What every client of our transport is answered from now on.

    `code` is the error, None: the server answers; `queue` the only queue that it is about, `after`
    how many requests are let through before, and `times` how often the error comes.
    """

    def __init__(self, monkeypatch, operation="SendMessage"):
        self.code, self.queue, self.after, self.times = None, None, 0, None
        self.operation = operation
        self.asked: Counter[str] = Counter()
        real = SqsChannel._new_boto_client

        def new(channel, *args, **options):
            client = real(channel, *args, **options)
            client.meta.events.register("before-send.sqs", self._answer)
            return client

        monkeypatch.setattr(SqsChannel, "_new_boto_client", new)

    def _answer(self, request, **_):
        operation = text(request.headers["X-Amz-Target"]).rpartition(".")[2]
        queue = json.loads(request.body).get("QueueUrl", "").rpartition("/")[2]
        self.asked[operation] += 1
        if self.code is None or operation != self.operation or self.queue not in (None, queue):
            return None
        if self.after:
            self.after -= 1
            return None
        if self.times is not None:
            if not self.times:
                return None
            self.times -= 1
        body = json.dumps({"__type": f"com.amazonaws.sqs#{self.code}", "message": "so be it"})
        headers = {"Content-Type": "application/x-amz-json-1.0"}
        return AWSResponse(request.url, STATUS[self.code], headers, _Raw(body.encode()))


class LetterFaults:
    """What the clients of dead letters are answered from now on, by operation.

    `codes` has the error of an operation, `replies` what a successful answer becomes; an operation
    in `mute` gets no answer; `only` is a word of the requests that they are about, if not of all.
    `asked` counts what was asked.
    """

    def __init__(self, monkeypatch):
        self.codes, self.replies, self.mute, self.only = {}, {}, set(), ""
        self.asked: Counter[str] = Counter()
        real = Service.connect

        def connect(service, kind):
            client = real(service, kind)
            client.meta.events.register(f"before-send.{kind}", self._answer)
            client.meta.events.register(f"after-call.{kind}", self._reply)
            return client

        monkeypatch.setattr(Service, "connect", connect)

    def _answer(self, request, event_name, **_):
        operation = event_name.rpartition(".")[2]
        self.asked[operation] += 1
        if self.only not in text(request.body):
            return None
        if operation in self.mute:
            raise EndpointConnectionError(endpoint_url="http://s3cret")
        if (code := self.codes.get(operation)) is None:
            return None
        if ".sns." in event_name:
            error = f"<Error><Code>{code}</Code><Message>so be it</Message></Error>"
            body = f"<ErrorResponse>{error}</ErrorResponse>"
            return AWSResponse(request.url, STATUS[code], {}, _Raw(body.encode()))
        body = json.dumps({"__type": f"com.amazonaws.sqs#{code}", "message": "so be it"})
        headers = {"Content-Type": "application/x-amz-json-1.0"}
        return AWSResponse(request.url, STATUS[code], headers, _Raw(body.encode()))

    def _reply(self, parsed, model, **_):
        if change := self.replies.get(model.name):
            change(parsed)


class _Raw(io.BytesIO):
    def stream(self):
        yield self.read()


def text(value):
    return value.decode() if isinstance(value, bytes) else value
