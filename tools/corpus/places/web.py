"""Web: small HTTP servers on 127.0.0.1 that answer, or fail to, as a scenario asks."""

from __future__ import annotations

import functools
import socket
import ssl
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tools.certificates import KEY, _openssl, make_certificates
from tools.corpus.normal import show_port
from tools.corpus.places import folders

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Answer:
    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)
    #: Bytes promised beyond the body: the connection ends before they come.
    missing: int = 0
    #: Seconds before anything is said.
    pause: float = 0.0
    #: Whether the connection ends without an answer.
    hangs_up: bool = False


_ANSWERS: dict[str, Answer] = {}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        answer = _ANSWERS.get(
            self.path.partition("?")[0], Answer(404, b'{"title": "no such path"}')
        )
        self.rfile.read(int(self.headers.get("content-length") or 0))
        time.sleep(answer.pause)
        self.close_connection = True
        if answer.hangs_up:
            return
        self.send_response(answer.status)
        self.send_header("Connection", "close")
        self.send_header("Content-Length", str(len(answer.body) + answer.missing))
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body)

    do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = _answer  # noqa: N815 - the library's names

    def log_message(self, *_: Any) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """Say nothing of clients that hang up: they are the point."""


@functools.cache
def _plain() -> int:
    return _serve(None, 8080)


def _serve(context: ssl.SSLContext | None, shown: int) -> int:
    server = _Server((LOOPBACK, 0), _Handler)
    if context is not None:
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    show_port(server.server_port, shown)
    return server.server_port


def url(path: str, status: int = 200, body: bytes = b"{}", **answer: Any) -> str:
    """Return the address at which the server answers so."""
    _ANSWERS[path] = Answer(status, body, **answer)
    return f"http://{LOOPBACK}:{_plain()}{path}"


def refused(path: str = "") -> str:
    """Return the address of a service that is down: nobody listens there."""
    return f"http://{LOOPBACK}:{closed_port()}{path}"


@functools.cache
def closed_port() -> int:
    with socket.socket() as once:
        once.bind((LOOPBACK, 0))
        port: int = once.getsockname()[1]
    show_port(port, 8081)
    return port


@functools.cache
def _full() -> tuple[int, list[socket.socket]]:
    """Return a port whose backlog is full: the kernel drops what asks to connect."""
    listening = socket.socket()
    listening.bind((LOOPBACK, 0))
    listening.listen(0)
    port = listening.getsockname()[1]
    show_port(port, 8082)
    held = [listening]
    for _ in range(4):
        one = socket.socket()
        one.settimeout(0)
        one.connect_ex((LOOPBACK, port))
        held.append(one)
    return port, held


def full(path: str = "") -> str:
    """Return the address of a server that accepts nobody any more."""
    return f"http://{LOOPBACK}:{_full()[0]}{path}"


# -- TLS -------------------------------------------------------------------------------------


@functools.cache
def _folder() -> Path:
    return folders.fresh()


@functools.cache
def _certificates() -> Any:
    return make_certificates(_folder() / "tls")


def authority() -> str:
    """Return the file of the authority that signed the good certificate."""
    return str(_certificates().authority)


def _context(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


@functools.cache
def _tls() -> int:
    made = _certificates()
    return _serve(_context(made.certificate, made.key), 8443)


@functools.cache
def _other_name() -> tuple[int, str]:
    """Return the port of a server with a certificate for another name, and its file."""
    return _self_signed("other", 8444, "subjectAltName=DNS:billing.example", "30")


@functools.cache
def _expired() -> tuple[int, str]:
    """Return the port of a server whose certificate has ended, and its file."""
    return _self_signed("expired", 8445, "subjectAltName=IP:127.0.0.1,DNS:localhost", "-1")


def _self_signed(name: str, shown: int, names: str, days: str) -> tuple[int, str]:
    folder = _folder()
    certificate, key, asked = (folder / f"{name}.{kind}" for kind in ("pem", "key", "csr"))
    extensions = folder / f"{name}.ext"
    extensions.write_text(f"{names}\nbasicConstraints=CA:TRUE\n")
    _openssl("req", "-new", *KEY, "-keyout", key, "-out", asked, "-subj", f"/CN={name}")
    _openssl(
        "x509", "-req", "-in", asked, "-signkey", key, "-out", certificate, "-days", days,
        "-extfile", extensions,
    )  # fmt: skip
    return _serve(_context(certificate, key), shown), str(certificate)


def secure(path: str = "") -> str:
    """Return the address of a server whose authority nobody trusts by default."""
    return f"https://{LOOPBACK}:{_tls()}{path}"


def misnamed(path: str = "") -> tuple[str, str]:
    port, trusted = _other_name()
    return f"https://{LOOPBACK}:{port}{path}", trusted


def expired(path: str = "") -> tuple[str, str]:
    port, trusted = _expired()
    return f"https://{LOOPBACK}:{port}{path}", trusted


def plain_behind_tls(path: str = "") -> str:
    """Return an address with the wrong scheme: what listens there speaks no TLS."""
    return f"https://{LOOPBACK}:{_plain()}{path}"


def plain_port() -> int:
    return _plain()
