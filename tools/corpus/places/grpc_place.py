"""gRPC: a server on 127.0.0.1 that answers with the status that its method's name asks for."""

from __future__ import annotations

import functools
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from tools.corpus.normal import show_port

LOOPBACK = "127.0.0.1"
#: Method → status and details.
_ANSWERS: dict[str, tuple[str, str]] = {}


class _Generic(grpc.GenericRpcHandler):
    def service(self, details: Any) -> Any:
        said = _ANSWERS.get(details.method)
        if said is None:
            return None
        return grpc.unary_unary_rpc_method_handler(functools.partial(_answer, said))


def _answer(said: tuple[str, str], _request: Any, context: Any) -> bytes:
    if said[0] == "SLOW":
        time.sleep(1)
        return b""
    context.abort(grpc.StatusCode[said[0]], said[1])
    return b""


@functools.cache
def _port() -> int:
    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((_Generic(),))
    port: int = server.add_insecure_port(f"{LOOPBACK}:0")
    server.start()
    _port.server = server  # kept as long as the process
    show_port(port, 50051)
    return port


def call(method: str, status: str = "", details: str = "", *, timeout: float = 2) -> bytes:
    """Call */shop.Stock/method*, which answers with *status*; without one nobody knows it."""
    path = f"/shop.Stock/{method}"
    if status:
        _ANSWERS[path] = (status, details)
    return call_at(f"{LOOPBACK}:{_port()}", path, timeout)


def call_at(target: str, path: str = "/shop.Stock/Reserve", timeout: float = 2) -> bytes:
    with grpc.insecure_channel(target) as channel:
        answer: bytes = channel.unary_unary(path)(b"", timeout=timeout)
        return answer
