from __future__ import annotations

from types import SimpleNamespace

import pytest

from angzarr.adapters.rabbitmq import py_amqp as module
from angzarr.adapters.rabbitmq.py_amqp import WriteBuffer


class Socket:
    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(bytes(data))


@pytest.fixture
def socket() -> Socket:
    return Socket()


@pytest.fixture
def cork(socket: Socket) -> WriteBuffer:
    made = WriteBuffer()
    made.frame_writer(SimpleNamespace(frame_max=131_072), socket)
    return made


def test_a_frame_is_written_at_once(cork: WriteBuffer, socket: Socket) -> None:
    cork.write(b"a")
    cork.write(b"b")
    assert socket.written == [b"a", b"b"]


def test_corked_frames_are_one_write_in_their_order(cork: WriteBuffer, socket: Socket) -> None:
    frame = bytearray(b"a")  # py-amqp reuses one buffer for all frames
    with cork.corked():
        cork.write(memoryview(frame))
        frame[:] = b"b"
        cork.write(memoryview(frame))
        assert socket.written == []
    cork.write(b"c")
    assert socket.written == [b"ab", b"c"]


def test_nothing_is_written_where_nothing_was_held(cork: WriteBuffer, socket: Socket) -> None:
    with cork.corked():
        pass
    assert socket.written == []


def test_what_was_held_is_written_though_the_block_fails(cork: WriteBuffer, socket: Socket) -> None:
    with pytest.raises(KeyError), cork.corked():  # noqa: PT012  the block is what fails
        cork.write(b"a")
        raise KeyError
    assert socket.written == [b"a"]


def test_no_more_than_a_bound_is_held(
    cork: WriteBuffer, socket: Socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_BUFFERED", 3)
    with cork.corked():
        for letter in b"abcd":
            cork.write(bytes([letter]))
        assert socket.written == [b"abc"]
    assert socket.written == [b"abc", b"d"]


def test_a_connection_made_anew_has_nothing_held(cork: WriteBuffer) -> None:
    fresh = Socket()
    with cork.corked():
        cork.write(b"a")
        cork.frame_writer(SimpleNamespace(frame_max=131_072), fresh)
        cork.write(b"b")
    assert fresh.written == [b"b"]
