"""Runs coroutines of handlers from synchronous workers, and interrupts handlers.

No coroutine is left pending. A handler that still runs when its worker must go is interrupted, and
nothing but a handler: a signal strikes the main thread, where prefork children and solo workers
run handlers. One that comes before a handler waits for it; one that comes after it is too late,
since the outcome is being made true.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import ctypes
import inspect
import os
import signal
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TypeVar

from angzarr.runtime.cooperative import CooperativeRun, cooperative_run


class Interrupt(BaseException):
    """Raised inside a handler whose worker's grace has ended; no ``except Exception`` takes it."""


class HandlerInterrupter:
    """Interrupts the handler that runs on this process's main thread.

    A soft time limit *strikes* a handler on any thread: it raises its error in that handler alone.
    """

    def __init__(self) -> None:
        self._inside = False
        self._raised = False
        #: Counts the handlers of the main thread: a strike is meant for one of them.
        self._entered = 0
        self._struck: tuple[int, type[Exception]] | None = None
        #: Of each other thread that is in a handler: whether it was struck.
        self._threads: dict[int, bool] = {}
        #: How to strike the coroutine that a thread waits for.
        self._waits: dict[int, Callable[[type[Exception]], object]] = {}
        self._lock = threading.Lock()

    @property
    def inside(self) -> bool:
        """True if the main thread is in a handler."""
        return self._inside

    def interrupt(self) -> None:
        """Interrupt the handler that runs here, or the next one; call it from a signal handler."""
        self._raised = True
        if self._inside:
            self._inside = False  # once: the handler may clean up
            raise Interrupt

    def reset(self) -> None:
        """Forget an interrupt: another worker begins in this process."""
        self._inside = self._raised = False

    def strike(self, thread: int, error: type[Exception], wake: int) -> bool:
        """Raise *error* in the handler that *thread* runs; False if it runs none now.

        The main thread is woken by the signal *wake*, for which `heed` must be the handler. Another
        thread that waits in C code gets the error once that returns.
        """
        if thread == threading.main_thread().ident:
            if not self._inside:
                return False
            self._struck = (self._entered, error)
            signal.pthread_kill(thread, wake)
            return True
        with self._lock:
            if thread not in self._threads:
                return False
            self._threads[thread] = True
            wait = self._waits.get(thread)
            if wait is None:
                _raise_in(thread, error)
            else:
                wait(error)
            return True

    def heed(self, _number: int, _frame: object) -> None:
        """Raise the error of a strike, as a signal handler; one that comes too late does not."""
        struck, self._struck = self._struck, None
        if struck is not None and self._inside and struck[0] == self._entered:
            raise struck[1]

    @contextmanager
    def waiting(self, strike: Callable[[type[Exception]], object]) -> Iterator[None]:
        """Let *strike* take a strike for this thread, which waits for a coroutine."""
        thread = threading.get_ident()
        self._waits[thread] = strike
        try:
            yield
        finally:
            del self._waits[thread]

    def __enter__(self) -> None:
        """Begin a handler; raises Interrupt if there was an interrupt already."""
        if threading.current_thread() is not threading.main_thread():
            self._threads[threading.get_ident()] = False
            return
        if self._raised:
            raise Interrupt
        self._entered += 1
        self._inside = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End a handler: from here on its outcome is made true."""
        if threading.current_thread() is threading.main_thread():
            self._inside = False
            return
        try:
            self._leave()
        except BaseException:  # a strike arrives only now: it is this handler's, as any earlier one
            self._leave()
            raise

    def _leave(self) -> None:
        thread = threading.get_ident()
        with self._lock:
            if self._threads.pop(thread, False):
                _take_back(thread)


class _TakenBack(Exception):
    """Takes the place of an error that must not be raised any more."""


def _take_back(here: int) -> None:
    """Let no error that was set for this thread, *here*, be raised later.

    Another one takes its place and is met at once. To set none would leave CPython looking for it
    at every call, for ever: all threads become slower, and a debugger, a profiler or a tracer hangs
    at its first call (CPython 3.11, `eval_frame_handle_pending`).
    """
    try:
        while _raise_in(here, _TakenBack):
            pass
    except _TakenBack:
        pass


def _raise_in(thread: int, error: type[Exception]) -> bool:
    """Raise *error* in *thread* when it next runs Python code; False if there is no such thread."""
    found = ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread), ctypes.py_object(error)
    )
    return bool(found)


#: A signal reaches a process, not an app: there is one for all.
INTERRUPTER = HandlerInterrupter()

T = TypeVar("T")

#: Seconds that cancelled coroutines are given to end.
GRACE = 5.0
#: The same when the worker must go.
INTERRUPT_GRACE = 0.3

_lock = threading.Lock()
_own: tuple[int, asyncio.AbstractEventLoop] | None = None
_shared: tuple[int, asyncio.AbstractEventLoop] | None = None
_interrupted_pid: int | None = None
#: Workers of this process whose threads may share a loop, and the thread of each shared loop.
_sharers = 0
_threads: dict[asyncio.AbstractEventLoop, threading.Thread] = {}


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run *work* to its end: on this process's own loop, or from a pool thread on a shared one.

    Prefork children and solo workers run handlers on the main thread; pool threads share one loop
    thread so that async clients can be shared too. Deliveries on that thread itself give it away
    meanwhile. Loops are made after the fork, on first use.
    """
    if (here := cooperative_run()) is not None:
        return _run_cooperatively(here, work)
    if threading.current_thread() is threading.main_thread():
        return _run_here(_own_loop(), work)
    return _run_shared(_shared_loop(), work)


async def _contained(work: Coroutine[Any, Any, T]) -> T:
    """Keep an exit that *work* asks for from ending the loop of all others."""
    try:
        return await work
    except (SystemExit, KeyboardInterrupt) as error:
        msg = f"the coroutine asked its process to end: {error!r}"
        raise RuntimeError(msg) from error


def _run_here(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    try:
        return loop.run_until_complete(work)
    except asyncio.CancelledError as error:
        # It is not an Exception, and would end the process instead of this delivery.
        _cancel_all(loop)
        msg = "the coroutine was cancelled from within"
        raise concurrent.futures.CancelledError(msg) from error
    except BaseException as error:
        # A soft time limit strikes between two callbacks: what stays pending would go on inside
        # the next delivery.
        _cancel_all(loop, INTERRUPT_GRACE if isinstance(error, Interrupt) else GRACE)
        raise


class _Struck(Coroutine[Any, Any, T]):
    """A coroutine in which an error can be raised at the point where it waits."""

    def __init__(self, work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> None:
        self._given = work
        self._work = _contained(work)
        self._loop = loop
        #: Its task, which refers to it: no cycle is left to collect. None: it has not begun.
        self._task: weakref.ref[asyncio.Task[Any]] | None = None
        self._error: type[Exception] | None = None

    def strike(self, error: type[Exception]) -> None:
        """Raise *error* in it; from any thread."""
        self._loop.call_soon_threadsafe(self._strike, error)

    def _strike(self, error: type[Exception]) -> None:
        self._error = error
        task = None if self._task is None else self._task()
        if task is not None:
            task.cancel()

    def send(self, value: Any) -> Any:
        """Go on; one that was struck before it began raises at its beginning."""
        if self._task is None:
            task = asyncio.current_task()
            assert task is not None  # noqa: S101 - it runs in one
            self._task = weakref.ref(task)
            if self._error is not None:
                self._given.close()
                return self._work.throw(self._error())
        return self._work.send(value)

    def throw(self, error: Any, *rest: Any) -> Any:
        """Go on with an error: that of a strike takes the place of its cancellation."""
        if self._error is not None and isinstance(error, asyncio.CancelledError):
            struck, self._error = self._error, None
            task = asyncio.current_task()
            assert task is not None  # noqa: S101 - it was cancelled
            task.uncancel()
            return self._work.throw(struck())
        return self._work.throw(error, *rest)

    def close(self) -> None:
        """End it."""
        self._work.close()

    def __await__(self) -> Any:
        """Be awaited as itself."""
        return self._work.__await__()


def _run_cooperatively(here: CooperativeRun, work: Coroutine[Any, Any, T]) -> T:
    try:
        if not here.is_struck:
            return here.finish(_contained(work))
        struck = _Struck(work, _shared_loop())
        return here.finish(struck, struck.strike)
    except BaseException as error:
        if inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
            work.close()  # cancelled before its first step
        if not isinstance(error, asyncio.CancelledError):
            raise
        if _interrupted_pid == os.getpid():
            raise Interrupt from error
        # It is not an Exception, and would be taken for the end of its thread.
        msg = "the coroutine was cancelled from within"
        raise concurrent.futures.CancelledError(msg) from error


def _run_shared(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    struck = _Struck(work, loop)
    with INTERRUPTER.waiting(struck.strike):
        return _await_shared(asyncio.run_coroutine_threadsafe(struck, loop))


def _await_shared(future: concurrent.futures.Future[T]) -> T:
    try:
        return future.result()
    except concurrent.futures.CancelledError as error:
        if _interrupted_pid == os.getpid():
            raise Interrupt from error
        raise
    except BaseException:
        future.cancel()
        raise


def begin_shared() -> asyncio.AbstractEventLoop:
    """Start the loop thread that pool threads share; raises what stands against it."""
    return _shared_loop()


def begin_sharing() -> None:
    """Take note of a worker whose threads may share the loop; `end_sharing` ends what it began."""
    global _sharers  # noqa: PLW0603 - those of this process
    with _lock:
        _sharers += 1


def end_sharing() -> None:
    """End the shared loop and its thread with the last worker of this process.

    What runs in it is cancelled. Who runs a coroutine from a thread afterwards has a new one.
    """
    global _sharers, _shared  # noqa: PLW0603 - one loop thread a process
    with _lock:
        _sharers = max(_sharers - 1, 0)
        if _sharers or _shared is None or _shared[0] != os.getpid():
            return
        (_, loop), thread, _shared = _shared, _threads.pop(_shared[1]), None
    asyncio.run_coroutine_threadsafe(_stop(loop), loop)
    thread.join(GRACE)
    if not thread.is_alive():
        loop.close()


async def _stop(loop: asyncio.AbstractEventLoop) -> None:
    others = asyncio.all_tasks(loop) - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=INTERRUPT_GRACE)
    loop.stop()


def interrupt_shared() -> None:
    """Cancel every coroutine that pool threads wait for; they raise Interrupt."""
    global _interrupted_pid
    if _shared is None or _shared[0] != os.getpid():
        return
    _interrupted_pid, loop = _shared

    def cancel() -> None:
        for task in asyncio.all_tasks(loop):
            task.cancel()

    loop.call_soon_threadsafe(cancel)


def _cancel_all(loop: asyncio.AbstractEventLoop, grace: float = GRACE) -> None:
    pending = asyncio.all_tasks(loop)
    for task in pending:
        task.cancel()
    if not pending:
        return
    _, stubborn = loop.run_until_complete(asyncio.wait(pending, timeout=grace))
    if stubborn:
        global _own  # noqa: PLW0603 - they refuse to end: leave them behind with their loop
        _own = None


def _own_loop() -> asyncio.AbstractEventLoop:
    global _own  # noqa: PLW0603 - one loop a process
    if _own is None or _own[0] != os.getpid():
        _own = (os.getpid(), asyncio.new_event_loop())
    return _own[1]


def _shared_loop() -> asyncio.AbstractEventLoop:
    global _shared  # noqa: PLW0603 - one loop thread a process
    with _lock:
        if _shared is None or _shared[0] != os.getpid():
            loop = asyncio.new_event_loop()
            thread = threading.Thread(target=loop.run_forever, name="angzarr-loop", daemon=True)
            thread.start()
            _threads[loop] = thread
            _shared = (os.getpid(), loop)
        return _shared[1]
