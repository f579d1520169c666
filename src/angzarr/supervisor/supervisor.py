"""Supervisor: keeps as many processes as its plan says, and ends all of them within one grace.

It loads no user code: a fork server does, so that an app that cannot be loaded any more harms no
process that runs. Signals: SIGTERM and SIGINT end all within their grace, a second one or SIGQUIT
cuts it short; SIGHUP loads the app anew and replaces all processes one by one; SIGTTIN and SIGTTOU
start one more and one less.
"""

from __future__ import annotations

import json
import logging
import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from angzarr.supervisor.pool_health import PoolHealth
from angzarr.supervisor.process_plan import Do, ProcessOrder, ProcessPlan, SinglePlan

_log = logging.getLogger("angzarr.supervisor")

#: Seconds after the grace by which every process has ended itself, else it is killed.
KILLED_AFTER: Final = 8.0
#: Seconds until the app is loaded again whose fork server died before it had loaded it.
LOADED_AGAIN_AFTER: Final = 2.0
_LOOKED_EVERY: Final = 0.25
_CHUNK: Final = 65_536
#: What each order is to a process.
_SIGNALS: Final = {Do.DRAIN: signal.SIGHUP, Do.STOP: signal.SIGTERM, Do.KILL: signal.SIGKILL}


@dataclass(slots=True)
class _ForkServerLine:
    """A fork server as its supervisor sees it."""

    generation: int
    line: socket.socket
    process: subprocess.Popen[bytes]
    #: What it said of the app once it was loaded; None: not yet.
    hello: Mapping[str, Any] | None = None
    unread: bytes = b""
    numbers: set[int] = field(default_factory=set)

    def order(self, **words: Any) -> None:
        """Send an order; a server that died tells by its end."""
        with suppress(OSError):
            self.line.sendall(json.dumps(words).encode() + b"\n")


class Supervisor:
    """*begin_server* starts the command of a fork server, given the descriptor of its line.

    *make_plan* is called with what the first one says of the app: the plan's processes follow.
    *single* plans a process that is there once.
    """

    def __init__(
        self,
        make_plan: Callable[[Mapping[str, Any]], ProcessPlan],
        begin_server: Callable[[int], subprocess.Popen[bytes]],
        health: PoolHealth,
        single: SinglePlan | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make_plan = make_plan
        self._begin_server = begin_server
        self._health = health
        self._single = single
        #: What every process is told at its start.
        self.start_words: dict[str, Any] = {}
        self._now = monotonic
        self.plan: ProcessPlan | None = None
        self._servers: dict[int, _ForkServerLine] = {}
        self._selector = selectors.DefaultSelector()
        self._signals: list[int] = []
        self._stopping = 0
        self._deadline = float("inf")
        self._grace = 0.0
        self._code = os.EX_OK
        self._generations = 0
        #: When the app is to be loaded again, since no fork server is left that has it.
        self._again_at: float | None = None

    def run(self) -> int:
        """Run until all processes ended; return the exit code of the command."""
        self._hear_signals()
        self._begin()
        while self._servers or self._again_at is not None:
            for key, _ in self._selector.select(_LOOKED_EVERY):
                if isinstance(key.data, _ForkServerLine):
                    for words in self._read(key.data):
                        self._hear(key.data, words)
                else:
                    os.read(key.fd, _CHUNK)
            while self._signals:
                self._obey(self._signals.pop(0))
            self._health.pulse.beat()
            self._carry_out()
        return self._code

    # -- signals ---------------------------------------------------------------------------------

    def _hear_signals(self) -> None:
        heard, rung = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(rung, warn_on_full_buffer=False)
        self._selector.register(heard, selectors.EVENT_READ)
        for number in (
            signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTTIN,
            signal.SIGTTOU,
        ):  # fmt: skip
            signal.signal(number, lambda number, _frame: self._signals.append(number))

    def _obey(self, number: int) -> None:
        if number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            self._stop(at_once=number == signal.SIGQUIT or self._stopping > 0)
        elif self._stopping or self.plan is None:
            return
        elif number == signal.SIGHUP:
            self._reload()
        else:
            step = 1 if number == signal.SIGTTIN else -1
            self.plan.resize(step)
            _log.info("processes_wanted: %d", self.plan.wanted)

    def _stop(self, *, at_once: bool) -> None:
        if not self._stopping:
            _log.info("stopping: within %g s", self._grace)
            self._health.stopping = True
        self._stopping += 1
        self._again_at = None
        self._deadline = self._now() + (0.0 if at_once else self._grace) + KILLED_AFTER
        if self.plan is not None:
            self.plan.stop()
        for server in self._servers.values():
            for one in server.numbers:
                server.order(number=one, signal=signal.SIGQUIT if at_once else signal.SIGTERM)
            if not server.numbers:
                self._dismiss(server)

    def _reload(self) -> None:
        """Load the app anew, beside what runs."""
        if self._is_loading():
            _log.warning("reload_refused: the app is still being loaded, since an earlier reload")
            return
        _log.info("reload: the app is loaded anew, then its processes are replaced one by one")
        self._begin()

    # -- fork servers ----------------------------------------------------------------------------

    def _begin(self) -> None:
        self._again_at = None
        self._generations += 1
        generation = self._generations
        ours, theirs = socket.socketpair()
        with theirs:
            process = self._begin_server(theirs.fileno())
        server = self._servers[generation] = _ForkServerLine(generation, ours, process)
        self._selector.register(ours, selectors.EVENT_READ, server)

    def _read(self, server: _ForkServerLine) -> Iterator[dict[str, Any]]:
        try:
            read = server.line.recv(_CHUNK)
        except OSError:
            read = b""
        if not read:
            self._lose(server)
            return
        *lines, server.unread = (server.unread + read).split(b"\n")
        yield from map(json.loads, lines)

    def _hear(self, server: _ForkServerLine, words: dict[str, Any]) -> None:
        if "hello" in words:
            self._welcome(server, words["hello"])
        elif "said" in words:
            self._listen(words["said"], words["words"])
        elif "started" in words:
            _log.info("process_started: %d, pid %d", words["started"], words["pid"])
        elif "ended" in words:
            self._note_end(server, words["ended"], words["code"])

    def _welcome(self, server: _ForkServerLine, hello: Mapping[str, Any]) -> None:
        server.hello = hello
        self._grace = float(hello["grace"])
        if self._stopping:
            self._dismiss(server)
        elif self.plan is None:
            self.plan = self._make_plan(hello)
        else:
            self.plan.reload(server.generation)

    def _listen(self, number: int, words: dict[str, Any]) -> None:
        plan = self.plan
        if plan is None:
            return
        plan.say(number, words, self._now())
        self._health.say(number, words)
        if reason := words.get("left"):
            _log.warning("process_left: %d, by %s: it is not replaced", number, reason)
            plan.leave(number)

    def _note_end(self, server: _ForkServerLine, number: int, code: int) -> None:
        server.numbers.discard(number)
        self._health.end(number)
        plan = self.plan
        if plan is None:
            return
        if number == 0 and self._single is not None:
            pause = self._single.end(failed=code != 0, now=self._now())
        else:
            pause = plan.end(number, failed=code != 0, now=self._now())
        if self._stopping:
            pass  # however it ends, it was asked to
        elif code and not plan.was_up:
            self._code = code if code > 0 else 1  # it said why
            self._stop(at_once=True)
        elif code:
            how = f"by {signal.Signals(-code).name}" if code < 0 else f"with code {code}"
            _log.error("process_died: %d ended %s, started again in %.1f s", number, how, pause)
        else:
            _log.info("process_ended: %d", number)
        if not server.numbers and (
            self._stopping or not plan.wanted or server.generation != plan.generation
        ):
            self._dismiss(server)

    def _forget(self, number: int) -> None:
        self._health.end(number)
        if number == 0 and self._single is not None:
            self._single.end(failed=True, now=self._now())
        elif self.plan is not None:
            self.plan.forget(number)

    def _dismiss(self, server: _ForkServerLine) -> None:
        """Hang up; it ends once its processes have."""
        with suppress(OSError):
            server.line.shutdown(socket.SHUT_WR)

    def _lose(self, server: _ForkServerLine) -> None:
        """Take note that a fork server ended: as it was told to, or since it could not load."""
        self._selector.unregister(server.line)
        server.line.close()
        code = server.process.wait()
        del self._servers[server.generation]
        for number in server.numbers:  # they end by themselves, and may still run something
            self._forget(number)
        plan = self.plan
        if self._stopping or (plan is not None and not plan.wanted):
            return
        if plan is None:
            self._code = code if code > 0 else 1
        elif plan.generation in self._servers:
            if server.hello is None:
                _log.error("reload_failed: what runs goes on; correct the app, then reload again")
        elif not self._is_loading():
            _log.error("fork_server_died: the app is loaded anew")
            pause = LOADED_AGAIN_AFTER if server.hello is None else 0.0
            self._again_at = self._now() + pause

    def _is_loading(self) -> bool:
        return any(server.hello is None for server in self._servers.values())

    # -- processes -------------------------------------------------------------------------------

    def _carry_out(self) -> None:
        now = self._now()
        if self._again_at is not None and now >= self._again_at:
            self._begin()
        if self._stopping and now > self._deadline:
            self._deadline = float("inf")
            for server in self._servers.values():
                if not server.numbers:  # it loads an app that does not load
                    server.process.kill()
                for one in server.numbers:
                    _log.critical("process_killed: %d, it did not end within its grace", one)
                    server.order(number=one, signal=signal.SIGKILL)
        plan, single = self.plan, self._single
        for order in plan.due(now) if plan is not None else ():
            self._send(order)
        if plan is not None and single is not None and plan.was_up and not self._stopping:
            for order in single.due(plan.generation, now):
                self._send(order)

    def _send(self, order: ProcessOrder) -> None:
        server = self._servers.get(order.generation)
        if server is None:  # it died: its processes end by themselves
            if order.do is Do.START:
                self._forget(order.number)
            return
        if order.do is Do.START:
            server.numbers.add(order.number)
            server.order(number=order.number, owners=order.owners, **self.start_words)
            return
        how = {Do.KILL: _log.error, Do.STOP: _log.error}.get(order.do, _log.info)
        how("process_%s: %d: %s", order.do.value, order.number, order.why)
        server.order(number=order.number, signal=_SIGNALS[order.do])
