"""A PostgreSQL server that refuses whoever knocks, in the words of the protocol's first answer.

The real server of the tests trusts everybody, so it can refuse no password.
"""

from __future__ import annotations

import socket
import struct
import threading

from tools.corpus.normal import show_port

LOOPBACK = "127.0.0.1"


def refusing(state: str, said: str) -> str:
    """Return the address of a server that answers one start-up with this error."""
    listening = socket.socket()
    listening.bind((LOOPBACK, 0))
    listening.listen()
    port = listening.getsockname()[1]
    show_port(port, 5433)
    threading.Thread(target=_answer, args=(listening, state, said), daemon=True).start()
    return f"postgresql://shop:wrong@{LOOPBACK}:{port}/shop?sslmode=disable&gssencmode=disable"


def _answer(listening: socket.socket, state: str, said: str) -> None:
    with listening, listening.accept()[0] as connection:
        connection.recv(4096)
        fields = {"S": "FATAL", "V": "FATAL", "C": state, "M": said}
        body = b"".join(f"{key}{value}\0".encode() for key, value in fields.items()) + b"\0"
        connection.sendall(b"E" + struct.pack("!I", len(body) + 4) + body)
