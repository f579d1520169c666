"""A receiver of webhooks that plays every fate, and an independent check of their signatures."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

#: Closes so that the other side sees a reset.
_RESET = struct.pack("ii", 1, 0)


class Request(NamedTuple):
    """What a receiver got."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def said(self) -> Any:
        return json.loads(self.body)


def verify(request: Request, secret: str) -> bool:
    """Verify after the specification's text, with nothing of the code under test."""
    key = base64.b64decode(secret.split("_", 1)[1])
    headers = request.headers
    signed = headers["webhook-id"] + "." + headers["webhook-timestamp"] + "."
    mac = hmac.HMAC(key, signed.encode("ascii") + request.body, hashlib.sha256)
    wanted = base64.standard_b64encode(mac.digest()).decode("ascii")
    told = [one.split(",", 1) for one in headers["webhook-signature"].split(" ")]
    return any(version == "v1" and hmac.compare_digest(sent, wanted) for version, sent in told)


def answer(code: int, *headers: str, body: bytes = b"") -> Callable[[socket.socket], None]:
    """Return the fate of a request that is answered so."""
    lines = [f"HTTP/1.1 {code} Said", f"Content-Length: {len(body)}", *headers, "", ""]

    def play(client: socket.socket) -> None:
        client.sendall("\r\n".join(lines).encode() + body)

    return play


def reset(client: socket.socket) -> None:
    """Cut the connection instead of answering."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)


def garbage(client: socket.socket) -> None:
    client.sendall(b"\x00\xff this is no HTTP\r\n\r\n")


class Receiver:
    """Listens on a port; each request meets the next fate, the last one again and again.

    *fates* are called with the connection after the request was read. *port* 0 is any free one.
    """

    def __init__(
        self, *fates: Callable[[socket.socket], None], tls: Any = None, port: int = 0
    ) -> None:
        self.fates = list(fates) or [answer(200)]
        self.requests: list[Request] = []
        self.over = threading.Event()
        self._tls = None
        if tls is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(tls.certificate, tls.key)
        self._listener = socket.create_server(("127.0.0.1", port))
        self._listener.settimeout(0.05)
        self._threads: list[threading.Thread] = []
        self._serve = threading.Thread(target=self._run, daemon=True)
        self._serve.start()

    @property
    def url(self) -> str:
        scheme = "https" if self._tls else "http"
        return f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}/hook?token=s3cret"

    def close(self) -> None:
        self.over.set()
        self._serve.join()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def drip(self, client: socket.socket) -> None:
        """Answer a byte at a time, for ever."""
        client.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        while not self.over.wait(0.02):
            client.sendall(b"x")

    def mute(self, client: socket.socket) -> None:
        """Answer nothing."""
        self.over.wait(60)

    def endless(self, client: socket.socket) -> None:
        """Answer well, with a body that never ends."""
        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n")
        while not self.over.is_set():
            client.sendall(b"x" * 65536)

    def _run(self) -> None:
        while not self.over.is_set():
            try:
                client, _ = self._listener.accept()
            except TimeoutError:
                continue
            thread = threading.Thread(target=self._meet, args=(client,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _meet(self, client: socket.socket) -> None:
        try:
            client.settimeout(5)
            if self._tls:
                client = self._tls.wrap_socket(client, server_side=True)
            self.requests.append(_read(client))
            fate = self.fates.pop(0) if len(self.fates) > 1 else self.fates[0]
            fate(client)
        except OSError:
            pass  # the client went away
        finally:
            client.close()


def _read(client: socket.socket) -> Request:
    raw = b""
    while b"\r\n\r\n" not in raw:
        raw += _more(client)
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)}
    while len(body) < int(headers.get("content-length", 0)):
        body += _more(client)
    return Request(method, path, headers, body)


def _more(client: socket.socket) -> bytes:
    if not (got := client.recv(65536)):
        raise ConnectionResetError
    return got
