"""A gateway before an SQS server, which answers some operations itself."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections import Counter
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

#: What belongs to one connection, not to its next.
HOP_BY_HOP = frozenset({"connection", "content-length", "transfer-encoding"})


class Gateway:
    """Passes requests on to *server*; `refuse` makes it answer an operation with an error."""

    def __init__(self, server: str) -> None:
        self.server = server.rstrip("/")
        self.asked: Counter[str] = Counter()
        #: Cleared: whoever asks gets no answer, nor does the server hear of it.
        self.speaking = threading.Event()
        self.speaking.set()
        self._refused: dict[str, tuple[int, str]] = {}
        self.port = 0
        self._http: ThreadingHTTPServer | None = None

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """Listen; after `close` at the same port."""
        self._http = ThreadingHTTPServer(("127.0.0.1", self.port), self._handler())
        self.port = self._http.server_port
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Refuse connections; those that are open end with what is being answered."""
        if self._http is not None:
            self.speaking.set()
            self._http.shutdown()
            self._http.server_close()
            self._http = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def refuse(self, operation: str, status: int, code: str) -> None:
        """Answer *operation* with that error until `admit`; `asked` counts from now on."""
        self.asked.clear()
        self._refused[operation] = status, code

    def admit(self) -> None:
        """Pass everything on again."""
        self._refused.clear()

    def answer(self, request: BaseHTTPRequestHandler) -> tuple[int, dict[str, str], bytes]:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        operation = request.headers.get("X-Amz-Target", "").rpartition(".")[2]
        self.asked[operation] += 1
        if operation in self._refused:
            status, code = self._refused[operation]
            said = {"__type": f"com.amazonaws.sqs#{code}", "message": "so be it"}
            return status, {"Content-Type": "application/x-amz-json-1.0"}, json.dumps(said).encode()
        return self._pass_on(request, body)

    def _pass_on(
        self, request: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        """Ask the server; the addresses of queues that it gives lead here again."""
        kept = {k: v for k, v in request.headers.items() if k.lower() not in HOP_BY_HOP}
        sent = urllib.request.Request(  # noqa: S310 - a server of tests
            self.server + request.path, body, kept, method=request.command
        )
        try:
            answer: Any = urllib.request.urlopen(sent, timeout=60)  # noqa: S310
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            kept = {k: v for k, v in answer.headers.items() if k.lower() not in HOP_BY_HOP}
            return (
                answer.status,
                kept,
                answer.read().replace(self.server.encode(), self.url.encode()),
            )

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        gateway = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                if not gateway.speaking.is_set():
                    gateway.speaking.wait()
                    self.close_connection = True
                    return  # what was asked meanwhile is never passed on
                self.close_connection = gateway._http is None
                status, headers, body = gateway.answer(self)
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                with suppress(BrokenPipeError):  # who waited too long is gone
                    self.end_headers()
                    self.wfile.write(body)

            do_GET = do_POST  # noqa: N815 - http.server's name

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler
