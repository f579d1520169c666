"""ForkServer: a process that has loaded the app, and forks the processes that run it.

It has one thread and opens nothing, so that a fork is safe and cheap: all share the app's memory.
It is their parent: it reaps them, hands on what they say, sends them signals, and kills one whose
hard time limit passed without its own limits having ended it. The supervisor decides; if it goes
away, the fork server stops all its processes.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import selectors
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from angzarr.supervisor.process_link import DeadlinePage, ProcessLink

_log = logging.getLogger("angzarr.supervisor")

#: Seconds after a hard limit by which a process has ended itself, else it is killed from here.
OVERDUE: Final = 4.0
_LOOKED_EVERY: Final = 0.25
#: The most bytes that are read at once.
_CHUNK: Final = 65_536


@dataclass(slots=True)
class _Child:
    number: int
    pid: int
    pipe: int
    page: DeadlinePage
    unread: bytes = b""


class ForkServer:
    """The server's side of *line*, a stream of JSON lines."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._children: dict[int, _Child] = {}
        self._unread = b""
        self._selector = selectors.DefaultSelector()

    def say(self, **words: Any) -> None:
        """Tell the supervisor; what it does not read any more is lost."""
        with suppress(OSError):
            self._line.sendall(json.dumps(words).encode() + b"\n")

    def serve(self) -> ProcessLink | None:
        """Carry out orders until the supervisor hangs up and all processes ended; then None.

        In each forked process it returns the `ProcessLink` of that process.
        """
        gc.collect()
        gc.freeze()  # no collection touches, and so copies, what all processes share
        self._hear_of_deaths()
        self._selector.register(self._line, selectors.EVENT_READ)
        while self._line.fileno() >= 0 or self._children:
            for key, _ in self._selector.select(_LOOKED_EVERY):
                if key.fileobj is self._line:
                    for order in self._orders():
                        if (link := self._carry_out(order)) is not None:
                            return link
                elif isinstance(key.data, _Child):
                    self._hand_on(key.data)
                else:
                    os.read(key.fd, _CHUNK)
            self._reap()
            self._kill_overdue()
        return None

    def _hear_of_deaths(self) -> None:
        """Wake up when a child dies. Signals that a terminal or a manager sends are for others."""
        heard, rung = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(rung, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        self._selector.register(heard, selectors.EVENT_READ)

    def _orders(self) -> Iterator[dict[str, Any]]:
        try:
            read = self._line.recv(_CHUNK)
        except OSError:
            read = b""
        if not read:
            self._hang_up()
            return
        *lines, self._unread = (self._unread + read).split(b"\n")
        yield from map(json.loads, lines)

    def _hang_up(self) -> None:
        self._selector.unregister(self._line)
        self._line.close()
        for child in self._children.values():
            os.kill(child.pid, signal.SIGTERM)

    def _carry_out(self, order: dict[str, Any]) -> ProcessLink | None:
        number = order["number"]
        if "signal" in order:
            if number in self._children:
                os.kill(self._children[number].pid, order["signal"])
            return None
        return self._fork(number, order)

    def _fork(self, number: int, order: dict[str, Any]) -> ProcessLink | None:
        try:
            read, write = os.pipe()
            page = DeadlinePage()
            pid = os.fork()
        except OSError as error:
            _log.error("process_not_started: %r: raise the limits (pids, memory, files)", error)
            self.say(ended=number, code=os.EX_OSERR)
            return None
        if pid == 0:
            os.close(read)
            self._leave()
            return ProcessLink(write, page, order)
        os.close(write)
        child = self._children[number] = _Child(number, pid, read, page)
        self._selector.register(read, selectors.EVENT_READ, child)
        self.say(started=number, pid=pid)
        return None

    def _leave(self) -> None:
        """Be another process: let go of all that is the server's."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for key in list(self._selector.get_map().values()):
            if key.fileobj is not self._line:
                os.close(key.fd)
        self._selector.close()
        self._line.close()

    def _hand_on(self, child: _Child) -> bool:
        """Tell the supervisor what *child* said; False once it says no more."""
        try:
            read = os.read(child.pipe, _CHUNK)
        except OSError:
            read = b""
        *lines, child.unread = (child.unread + read).split(b"\n")
        for line in lines:
            self.say(said=child.number, words=json.loads(line))
        if not read:
            with suppress(KeyError):
                self._selector.unregister(child.pipe)
        return bool(read)

    def _reap(self) -> None:
        for child in list(self._children.values()):
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if not pid:
                continue
            os.set_blocking(child.pipe, False)  # a process of its own may hold the other end
            while self._hand_on(child):
                pass
            os.close(child.pipe)
            child.page.close()
            del self._children[child.number]
            self.say(ended=child.number, code=os.waitstatus_to_exitcode(status))

    def _kill_overdue(self) -> None:
        now = time.monotonic()
        for child in self._children.values():
            if child.page.passed(now - OVERDUE):
                _log.error(
                    "process_killed: %d, whose task did not end at its hard time limit", child.pid
                )
                child.page.set(None)
                os.kill(child.pid, signal.SIGKILL)
