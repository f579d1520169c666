"""BreakerGuard: a breaker around a call, as a decorator, a context manager, or a plain call.

    @crm                                with crm:                     async with crm:
    def upsert(...): ...                    client.upsert(...)            await client.upsert(...)

Each refuses by CircuitOpenError while the breaker is open. In a handler that postpones the event,
no attempt used; anywhere else it is the caller's to catch. A `Guard` is a breaker around a whole
handler (spec D5).
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import itertools
import logging
import os
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from types import TracebackType
from typing import Any, NamedTuple, ParamSpec, TypeAlias, TypeVar

from angzarr.errors import CircuitOpenError, ConfigurationError, Directive
from angzarr.resilience.breaker import Barred, Breakers, Permit
from angzarr.resilience.idempotency import printable_part

Errors: TypeAlias = type[BaseException] | tuple[type[BaseException], ...]
#: A breaker's name, several, or names with the errors that each of them counts.
Named: TypeAlias = str | Sequence[str] | Mapping[str, Errors] | None

_MARK = "__angzarr_counted__"
_numbers = itertools.count(1)
#: Before the colon in the names of breakers of poison waves.
WAVE = "wave"
#: Characters of a name at most.
_LONGEST = 200


class Guard(NamedTuple):
    """A breaker that a handler names, and which errors it counts if they say illness."""

    name: str
    errors: tuple[type[BaseException], ...] = (BaseException,)

    def counts(self, error: BaseException | None) -> bool:
        """True if *error* is one of this breaker's."""
        return isinstance(error, self.errors)


def guards(named: Named) -> tuple[Guard, ...]:
    """The guards that a handler names; raises ConfigurationError for an invalid name."""
    if named is None:
        return ()
    if isinstance(named, str):
        return (_guard_of(named, BaseException),)
    if isinstance(named, Mapping):
        return tuple(_guard_of(name, errors) for name, errors in named.items())
    return tuple(_guard_of(name, BaseException) for name in dict.fromkeys(named))


def check_name(name: object, of: str = "a breaker") -> str:
    """*name* if it can be one: 1 to 200 printable characters, no space, no colon."""
    if not isinstance(name, str) or not _fits(name):
        msg = (
            f"{name!r} is not a name of {of}: use 1 to 200 printable characters, without spaces"
            " and colons"
        )
        raise ConfigurationError(msg)
    return name


def _fits(name: str) -> bool:
    return 0 < len(name) <= _LONGEST and name.isprintable() and not {" ", ":"} & {*name}


def keyed(name: str, key: object) -> str:
    """The name of the breaker that *key* has within those of *name*, ``name:key``.

    Any key will do: forbidden characters are escaped, and a key that is too long is digested.
    Without one, None or "", it is *name* itself. Raises ConfigurationError for an invalid *name*.
    """
    text = "" if key is None else str(key)
    return check_full_name(f"{name}:{printable_part(text)}" if text else name)


def check_full_name(name: str) -> str:
    """*name* if it is one, alone or with a key as `keyed` writes it."""
    base, colon, key = name.partition(":")
    if not colon:
        return check_name(name)
    if base == WAVE:
        msg = f"{name!r}: breakers whose names begin with {WAVE}: are those of poison waves"
        raise ConfigurationError(msg)
    return f"{check_name(base)}:{check_name(key, 'a key')}"


def next_call() -> int:
    """The number of a guarded call that begins; one inside it has a higher number."""
    return next(_numbers)


def mark_counted(error: BaseException, call: int) -> None:
    """Note that the breaker around *call* has counted *error*: one around that does not again."""
    with suppress(Exception):  # its class refuses attributes; then it counts twice
        setattr(error, _MARK, call)


def counted_within(error: BaseException | None, call: int) -> bool:
    """True if a breaker inside *call*, so nearer to the dependency, has counted *error*."""
    with suppress(Exception):  # its class may do anything when it is asked
        mark = getattr(error, _MARK, 0)
        return isinstance(mark, int) and mark > call
    return False


def _guard_of(name: object, errors: Errors) -> Guard:
    given = errors if isinstance(errors, tuple) else (errors,)
    if not given or not all(_is_exception(one) for one in given):
        msg = f"breaker {name!r}: name the exception classes that it counts, not {errors!r}"
        raise ConfigurationError(msg)
    return Guard(check_name(name), given)


def _is_exception(given: object) -> bool:
    return isinstance(given, type) and issubclass(given, BaseException)


_log = logging.getLogger("angzarr.flow")

P = ParamSpec("P")
T = TypeVar("T")


class _GuardedCall(NamedTuple):
    """A call that was let through."""

    permit: Permit
    number: int
    began: float


#: The ``with`` blocks around the code that runs here, outermost first: the calls that have entered
#: the block's guard, and the number of this one.
_Here: TypeAlias = tuple[tuple[dict[int, _GuardedCall], int], ...]
_HERE: ContextVar[_Here] = ContextVar("angzarr_guarded", default=())

#: Tokens name calls; a process's own differ from others' by what they begin with.
_process = uuid.uuid4().hex
_tokens = itertools.count()


def _begin_process() -> None:
    """Take another name: two children of one fork would take one probe for their own."""
    global _process  # noqa: PLW0603 - it is the process's
    _process = uuid.uuid4().hex


os.register_at_fork(after_in_child=_begin_process)


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerGuard:
    """Safe to share between threads and coroutines; keep one for each dependency.

    An error counts as a failure if it says that the dependency is ill (`category.ILLNESS`, by the
    app's rules) and is one of the guard's errors. What ends the process, or is cancelled, says
    nothing. *fallback* is called with the same arguments instead of raising CircuitOpenError; a
    context manager has none.
    """

    guard: Guard
    #: Asked at each call: a fork needs another.
    breakers: Callable[[], Breakers]
    is_ill: Callable[[Exception], bool]
    fallback: Callable[..., Any] | None = None
    #: Whose calls these are at the moment, for their turn in a ramp-up; "": each is its own.
    whose: Callable[[], str] = str
    _clock: Callable[[], float] = field(default=time.perf_counter)
    #: The calls within ``with`` blocks, by number.
    _entered: dict[int, _GuardedCall] = field(
        default_factory=dict, init=False, repr=False, compare=False, hash=False
    )

    @property
    def name(self) -> str:
        """The breaker's name."""
        return self.guard.name

    def call(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """What *function* returns; raises what it raises, or CircuitOpenError.

        Raises ConfigurationError for a coroutine function: nothing of it has run yet.
        """
        call = self._begin(self._ask())
        if call is None:
            instead: T = self._instead(args, kwargs)
            return instead
        try:
            value = function(*args, **kwargs)
        except BaseException as error:
            self._end(call, error)
            raise
        if inspect.iscoroutine(value):
            value.close()
            self.breakers().forgo(call.permit)
            msg = f"breaker {self.name!r} was given a coroutine function: use await .acall(f, …)"
            raise ConfigurationError(msg)
        self._end(call, None)
        return value

    async def acall(self, function: Callable[..., Awaitable[T]], /, *args: Any, **kwargs: Any) -> T:
        """What the coroutine *function* returns; the event loop waits for no store."""
        call = self._begin(await self._aask())
        if call is None:
            instead: Any = self._instead(args, kwargs)
            return await instead if inspect.isawaitable(instead) else instead  # type: ignore[no-any-return]
        try:
            value = await function(*args, **kwargs)
        except BaseException as error:
            await self._aend(call, error)
            raise
        self._end(call, None)
        return value

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        """Decorate *function*, sync or async.

        Raises ConfigurationError for a generator function, which calls while it is iterated.
        """
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            msg = (
                f"breaker {self.name!r} cannot decorate a generator function: write `with` or"
                " `async with` around the calls within it"
            )
            raise ConfigurationError(msg)
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def acalled(*args: P.args, **kwargs: P.kwargs) -> Any:
                return await self.acall(function, *args, **kwargs)

            return acalled  # type: ignore[return-value]

        @functools.wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> T:
            return self.call(function, *args, **kwargs)

        return called

    def __enter__(self) -> None:
        self._push(self._ask())

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if (call := self._pop()) is not None:
            self._end(call, error)

    async def __aenter__(self) -> None:
        self._push(await self._aask())

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if (call := self._pop()) is not None:
            await self._aend(call, error)

    def _ask(self) -> Permit | Barred:
        token = f"{_process}-{next(_tokens)}"
        try:
            return self.breakers().admit(self.name, token, self.whose())
        except BaseException:  # a time limit may strike after the probe was taken
            self.breakers().forgo(Permit(self.name, 0, token))
            raise

    async def _aask(self) -> Permit | Barred:
        known = self.breakers().known(self.name)
        if known is not None:
            return known
        answer: Future[Permit | Barred] = Future()
        try:
            await asyncio.to_thread(lambda: answer.set_result(self._ask()))
        except BaseException:
            # Cancelled; the thread goes on, and its permit is not used.
            answer.add_done_callback(self._give_back)
            raise
        return answer.result()

    def _give_back(self, answer: Future[Permit | Barred]) -> None:
        if isinstance(permit := answer.result(), Permit):
            self.breakers().forgo(permit)

    def _begin(self, answer: Permit | Barred) -> _GuardedCall | None:
        """The call that begins now; None: it is refused, and there is a fallback."""
        if isinstance(answer, Permit):
            return _GuardedCall(answer, next_call(), self._clock())
        if self.fallback is not None:
            return None
        raise answer.error(self.name)

    def _instead(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        assert self.fallback is not None  # noqa: S101 - `_begin` has raised otherwise
        return self.fallback(*args, **kwargs)

    def _push(self, answer: Permit | Barred) -> None:
        if isinstance(answer, Barred):
            raise answer.error(self.name)
        call = _GuardedCall(answer, next_call(), self._clock())
        self._entered[call.number] = call
        _HERE.set((*_still_here(), (self._entered, call.number)))

    def _pop(self) -> _GuardedCall | None:
        """The call of the ``with`` block that ends: the innermost of this guard here.

        A block may end elsewhere than it began, as an async generator's does that another task
        closes. It is most likely the one that has been open for longest.
        """
        here = [number for its, number in reversed(_HERE.get()) if its is self._entered]
        for number in (*here, *self._entered.copy()):
            call = self._entered.pop(number, None)
            if call is not None:
                _HERE.set(_still_here())
                return call
        return None

    def _end(self, call: _GuardedCall, error: BaseException | None) -> None:
        """Record how *call* ended; raises nothing."""
        ok = self._judged(call, error)
        if ok is None:
            self.breakers().forgo(call.permit)
            return
        if error is not None and not ok:
            mark_counted(error, call.number)
        took = timedelta(seconds=self._clock() - call.began)
        self.breakers().record(call.permit, ok=ok, took=took)

    async def _aend(self, call: _GuardedCall, error: BaseException | None) -> None:
        """Record how *call* ended, elsewhere if that may take a moment."""
        if error is None and not call.permit.probe:
            self._end(call, None)
        elif isinstance(error, Exception | None):
            await asyncio.to_thread(self._end, call, error)
        else:
            self._end(call, error)  # cancelled: nothing may be awaited any more

    def _judged(self, call: _GuardedCall, error: BaseException | None) -> bool | None:
        """True if the dependency is well, None if *error* is not its answer."""
        if error is None:
            return True
        if not isinstance(error, Exception) or isinstance(error, CircuitOpenError | Directive):
            return None
        if not self.guard.counts(error) or counted_within(error, call.number):
            return None
        try:
            return not self.is_ill(error)
        except Exception:  # noqa: BLE001 - an app's rules may be broken; the caller needs *error*
            _log.exception("breaker_error_not_judged: %s", self.name)
            return None


def _still_here() -> _Here:
    """The ``with`` blocks here without those that have ended, here or elsewhere."""
    return tuple((its, number) for its, number in _HERE.get() if number in its)
