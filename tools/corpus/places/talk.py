"""Talk: a server that greets, and answers each line with its next one (SMTP, FTP)."""

from __future__ import annotations

import socket
import threading

from tools.corpus.normal import show_port

LOOPBACK = "127.0.0.1"


def saying(*lines: str, shown: int = 2525) -> int:
    """Return the port of a server that says *lines* in turn, each to the next line it hears."""
    listening = socket.socket()
    listening.bind((LOOPBACK, 0))
    listening.listen()
    port: int = listening.getsockname()[1]
    show_port(port, shown)
    threading.Thread(target=_talk, args=(listening, lines), daemon=True).start()
    return port


def resetting() -> int:
    """Return the port of a server that takes a connection, and resets it at the first word."""
    listening = socket.socket()
    listening.bind((LOOPBACK, 0))
    listening.listen()
    port: int = listening.getsockname()[1]
    show_port(port, 2626)
    threading.Thread(target=_reset, args=(listening,), daemon=True).start()
    return port


def _talk(listening: socket.socket, lines: tuple[str, ...]) -> None:
    with listening, listening.accept()[0] as connection:
        for line in lines:
            connection.sendall(f"{line}\r\n".encode())
            connection.recv(4096)


def _reset(listening: socket.socket) -> None:
    with listening, listening.accept()[0] as connection:
        connection.recv(4096)
        at_once = b"\x01\x00\x00\x00\x00\x00\x00\x00"
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
