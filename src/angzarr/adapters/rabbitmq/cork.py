"""Cork: many frames in one write to the broker; py-amqp makes a system call of each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from amqp import method_framing

#: Bytes that are held back at most, so that the broker has work while the rest is made; one frame
#: more may be as large as it allows.
_MOST: Final = 32 * 1024


class Cork:
    """Stands between py-amqp's writer of frames and one connection's socket."""

    def __init__(self) -> None:
        self._write: Any = None
        self._held: bytearray | None = None

    def frame_writer(self, connection: Any, transport: Any) -> Any:
        """Return py-amqp's writer of frames for a *connection* that is being made."""
        self._write, self._held = transport.write, None
        return method_framing.frame_writer(connection, self)

    def write(self, frame: bytes | memoryview) -> None:
        """Write *frame*, or hold it back while corked."""
        if self._held is None:
            self._write(frame)
            return
        self._held += frame  # a copy: py-amqp writes the next one over it
        if len(self._held) >= _MOST:
            self._flush(self._held)
            self._held.clear()

    @contextmanager
    def corked(self) -> Iterator[None]:
        """Hold frames back until the block ends, also if it fails; raises what writing does."""
        self._held = bytearray()
        try:
            yield
        finally:
            held, self._held = self._held, None
            self._flush(held)

    def _flush(self, held: bytearray | None) -> None:
        if held:
            self._write(bytes(held))
