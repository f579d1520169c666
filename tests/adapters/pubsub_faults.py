"""Errors of Pub/Sub that no emulator can be made to give, answered where a request would be sent.

Google's clients batch, time and raise as ever; only the server is not asked.
"""

from __future__ import annotations

from collections import Counter

import grpc


class Faults(grpc.UnaryUnaryClientInterceptor):
    """What clients that are made from now on are answered.

    `codes` are the answers to the next calls of a method, in order, as a gRPC code or None: the
    server answers; `of_text` the code for each request that holds a text, for ever.
    """

    SAID = "so be it"

    def __init__(self, monkeypatch):
        self.codes: dict[str, list[grpc.StatusCode | None]] = {}
        self.of_text: dict[bytes, grpc.StatusCode] = {}
        self.trailing: tuple[tuple[str, bytes], ...] = ()
        self.asked: Counter[str] = Counter()
        real = grpc.insecure_channel
        monkeypatch.setattr(
            grpc, "insecure_channel", lambda target: grpc.intercept_channel(real(target), self)
        )

    def intercept_unary_unary(self, continuation, details, request):
        method = details.method.rpartition("/")[2]
        self.asked[method] += 1
        code = self._code(method, request)
        return _Refusal(code, self.trailing) if code else continuation(details, request)

    def _code(self, method, request):
        if self.codes.get(method):
            return self.codes[method].pop(0)
        if method != "Publish" or not self.of_text:
            return None
        bodies = [message.data for message in request.messages]
        return next(
            (code for text, code in self.of_text.items() if any(text in one for one in bodies)),
            None,
        )


class _Refusal(grpc.RpcError, grpc.Call, grpc.Future):
    """The outcome of a call that the server refused."""

    def __init__(self, code, trailing):
        self._code = code
        self._trailing = trailing

    def code(self):
        return self._code

    def details(self):
        return Faults.SAID

    def trailing_metadata(self):
        return self._trailing

    def initial_metadata(self):
        return ()

    def result(self, timeout=None):
        raise self

    def exception(self, timeout=None):
        return self

    def traceback(self, timeout=None):
        return None

    def add_done_callback(self, callback):
        callback(self)

    def add_callback(self, callback):
        return False

    def done(self):
        return True

    def running(self):
        return False

    def cancelled(self):
        return False

    def cancel(self):
        return False

    def is_active(self):
        return False

    def time_remaining(self):
        return None
