"""MySQL in small: greets a real client, and answers with one error, in the protocol's own bytes."""

from __future__ import annotations

import socket
import struct
import threading

from tools.corpus.normal import show_port

LOOPBACK = "127.0.0.1"
#: 4.1 protocol, a database named at once, plug-ins that prove a password.
_CAN = 0x00000001 | 0x00000008 | 0x00000200 | 0x00002000 | 0x00008000 | 0x00080000
_OK = b"\x00\x00\x00\x02\x00\x00\x00"
#: Statements that every client sends to set its connection up.
_SETTING_UP = (b"SET ", b"ROLLBACK", b"COMMIT")


def refusing(code: int, state: str, message: str) -> int:
    """Return the port of a server that lets nobody in, and says why."""
    return _serve(_error(code, state, message), greets=False)


def failing(code: int, state: str, message: str) -> int:
    """Return the port of a server that answers every statement with one error."""
    return _serve(_error(code, state, message), greets=True)


def hanging_up() -> int:
    """Return the port of a server that ends the connection at the first statement."""
    return _serve(None, greets=True)


def _error(code: int, state: str, message: str) -> bytes:
    return b"\xff" + struct.pack("<H", code) + f"#{state}{message}".encode()


def _serve(answer: bytes | None, *, greets: bool) -> int:
    listening = socket.socket()
    listening.bind((LOOPBACK, 0))
    listening.listen()
    port: int = listening.getsockname()[1]
    show_port(port, 3306)
    threading.Thread(target=_talk, args=(listening, answer, greets), daemon=True).start()
    return port


def _talk(listening: socket.socket, answer: bytes | None, greets: bool) -> None:  # noqa: FBT001
    with listening, listening.accept()[0] as line:
        line.sendall(_packet(_greeting(), 0))
        number, _ = _heard(line)
        line.sendall(_packet(_OK if greets else answer or _OK, number + 1))
        while greets:
            number, said = _heard(line)
            if not said or said[:1] == b"\x01":
                return
            if said[1:].lstrip().startswith(_SETTING_UP):
                line.sendall(_packet(_OK, number + 1))
            elif answer is None:
                return
            else:
                line.sendall(_packet(answer, number + 1))


def _greeting() -> bytes:
    salt = b"abcdefgh", b"ijklmnopqrst\x00"
    return (
        b"\x0a8.4.3\x00" + struct.pack("<I", 7) + salt[0] + b"\x00"
        + struct.pack("<H", _CAN & 0xFFFF) + b"\x2d" + struct.pack("<H", 2)
        + struct.pack("<H", _CAN >> 16) + bytes([21]) + bytes(10) + salt[1]
        + b"mysql_native_password\x00"
    )  # fmt: skip


def _packet(body: bytes, number: int) -> bytes:
    return struct.pack("<I", len(body))[:3] + bytes([number]) + body


def _heard(line: socket.socket) -> tuple[int, bytes]:
    head = line.recv(4, socket.MSG_WAITALL)
    if len(head) < 4:
        return 0, b""
    return head[3], line.recv(int.from_bytes(head[:3], "little"), socket.MSG_WAITALL)
