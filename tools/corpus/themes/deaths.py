"""Events that kill whoever handles them, or take so long that they are killed."""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import signal
import tempfile
from dataclasses import replace
from typing import Any

from billiard.exceptions import SoftTimeLimitExceeded, TimeLimitExceeded
from tools.corpus import workshop
from tools.corpus.cases import breaker, ill, other, recent
from tools.corpus.events import OrderPlaced
from tools.corpus.scenario import ORDER, Scenario, scenario

from angzarr.analysis.ledger.entry import FailureClass
from angzarr.resilience.idempotency import Release

POISON = FailureClass.POISON


def _kill(app: Any, given: Scenario) -> None:
    """Let the handler take three children of a worker along; then take its message once more."""
    envelope = workshop.envelope_of(app, workshop.fetched(app))
    order = OrderPlaced(**ORDER)
    args = [dict(ORDER)]
    for start in range(3):
        one = workshop.delivery_of(app, envelope._replace(token=f"start-{start}"), args, {})
        app._parts.claims.store.claim([one.claim])
        if not _dies(given, order):
            raise workshop.NoLetter(f"{given.name} kills nothing")
        app._parts.claims.store.settle(one.key, one.token, Release(counted=True, was_counted=True))
    last = workshop.delivery_of(app, envelope, args, {})
    app._runtime.executor().take(replace(last, redelivered=True))


def _dies(given: Scenario, order: OrderPlaced) -> bool:
    """Run the handler in a child; return whether that ended without the handler's return."""
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 2)
        try:
            given.handler(order)
        finally:
            os._exit(0)
    return os.waitpid(child, 0)[1] != 0


def dies(why: str, **seen: Any) -> Any:
    return scenario(other(POISON, why, **seen), road=_kill)


@dies("the image library reads where it must not: a segmentation fault")
def segfault(_order: OrderPlaced) -> None:
    ctypes.string_at(1)


@dies("a C library calls abort()", breakers=breaker("stock-api", "closed", 0.0))
def abort(_order: OrderPlaced) -> None:
    os.abort()


@dies("the kernel kills who takes all memory")
def killed_for_memory(_order: OrderPlaced) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@dies("a library ends the process with its error code", group_events=3)
def exits(_order: OrderPlaced) -> None:
    os._exit(3)


@dies("it reads a mapped file that was cut meanwhile: a bus error")
def bus_error(_order: OrderPlaced) -> None:
    with tempfile.TemporaryFile() as file:
        file.truncate(2 * mmap.PAGESIZE)
        mapped = mmap.mmap(file.fileno(), 2 * mmap.PAGESIZE)
        file.truncate(0)
        bytes(mapped[mmap.PAGESIZE])


@dies("it computes longer than its process may: SIGXCPU", handler_recent=recent(0, 1))
def used_up_its_time(_order: OrderPlaced) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.02)  # stands for an hour of computing
    signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGXCPU))
    while True:
        pass


@dies("a file that grows beyond what the process may write: SIGXFSZ")
def file_too_large(_order: OrderPlaced) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
    with tempfile.TemporaryFile(buffering=0) as file:
        for _ in range(2):  # the first one is only cut
            file.write(b"x" * 99)


@dies("an instruction that this processor does not have")
def illegal_instruction(_order: OrderPlaced) -> None:
    os.kill(os.getpid(), signal.SIGILL)


@scenario(
    other(POISON, "one event asks for more memory than any worker has"),
    other(POISON, "two events ask for more memory than any worker has", group_events=2),
)
def too_much_memory(_order: OrderPlaced) -> bytearray:
    return bytearray(2**62)


# -- time limits ----------------------------------------------------------------------------


def _struck(app: Any, given: Scenario) -> None:
    """End as the parent ends what ran beyond its hard time limit: its process was killed."""
    workshop.take_one(app, given, TimeLimitExceeded(30))


@scenario(
    other(POISON, "this one is killed at its limit each time; all others are through in a second",
          handler_recent=recent(803, 1)),
    ill("every one is killed at its limit: the dependency hangs", "stock-api"),
    road=_struck,
)  # fmt: skip
def hard_limit(order: OrderPlaced) -> None: ...


@scenario(ill("it waits for a dependency that hangs, until its soft limit", "stock-api"))
def soft_limit(_order: OrderPlaced) -> None:
    def strike(*_: Any) -> None:
        raise SoftTimeLimitExceeded

    before = signal.signal(signal.SIGALRM, strike)
    signal.setitimer(signal.ITIMER_REAL, 0.02)
    try:
        signal.pause()
    finally:
        signal.signal(signal.SIGALRM, before)
