"""Context: what a handler may know about the delivery it runs in (spec D8)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from angzarr.delivery.compensation import CompensationAction
from angzarr.delivery.configuration import ConfigurationReads, NoConfiguration
from angzarr.delivery.delivery import Delivery
from angzarr.errors import ConfigurationError
from angzarr.events.event import Event
from angzarr.facts.cost import Spending, Units, cost_of, units_of
from angzarr.ordering.lanes import Turn
from angzarr.resilience.backoff import Policy
from angzarr.resilience.breaker_guard import BreakerGuard, keyed

if TYPE_CHECKING:
    from angzarr.delivery.handlers import Handler

T = TypeVar("T")

#: The delivery whose handler runs here: what it publishes belongs to the same flow (spec D1).
RUNNING: ContextVar[Delivery | None] = ContextVar("angzarr_running", default=None)


def no_breaker(name: str) -> BreakerGuard:
    """Refuse: this context belongs to no app."""
    msg = f"this context does not belong to an app: the breaker {name!r} is not known here"
    raise ConfigurationError(msg)


class StepRetries(Protocol):
    """Tries one step of a handler again, while it runs."""

    def call(self, step: Callable[[], T], /) -> T:
        """The value of *step*."""

    async def acall(self, step: Callable[[], Awaitable[T]], /) -> T:
        """The awaited value of *step*."""


def no_retries(_policy: Policy | str) -> StepRetries:
    """Refuse: this context belongs to no app."""
    msg = "this context does not belong to an app: it has no retry policy"
    raise ConfigurationError(msg)


class FinishedSteps(Protocol):
    """Takes note of steps that a handler has finished."""

    def register(self, action: CompensationAction, /) -> None:
        """Register *action*; returns once it is written."""

    async def aregister(self, action: CompensationAction, /) -> None:
        """Register *action*; returns once it is written, and does not block the event loop."""


#: Characters of the id of an asset.
LONGEST_ASSET: Final = 500


class NoSteps:
    """Refuses: this context belongs to no app."""

    def register(self, action: CompensationAction, /) -> None:
        """Refuse."""
        msg = f"step {action.name!r} is kept nowhere: this context belongs to no app"
        raise ConfigurationError(msg)

    async def aregister(self, action: CompensationAction, /) -> None:
        """Refuse."""
        self.register(action)


class Costs(Protocol):
    """Takes costs of deliveries, and knows whether more may be spent."""

    @property
    def is_bounded(self) -> bool:
        """Whether there are budgets at all."""

    def check(self, delivery: Delivery, /) -> None:
        """Raise CostBudgetSpentError where a budget of *delivery* is spent."""

    def add(self, delivery: Delivery, number: int, spending: Spending, /) -> None:
        """Write *spending* down, the *number*-th of this run."""

    def close(self) -> None:
        """Let connections go."""


class NoCosts:
    """Takes costs and keeps none: for a handler that is called as a function."""

    is_bounded = False

    def check(self, delivery: Delivery, /) -> None:
        """Bound nothing."""

    def add(self, delivery: Delivery, number: int, spending: Spending, /) -> None:
        """Keep nothing."""

    def close(self) -> None:
        """Do nothing: there are no connections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextTools:
    """What the contexts of one process are made with."""

    make_log: Callable[[Mapping[str, Any]], Any]
    #: Makes a breaker around one call inside a handler.
    make_breaker: Callable[[Handler | None, str], BreakerGuard]
    costs: Costs = field(default_factory=NoCosts)


@dataclass(frozen=True, kw_only=True)
class Context:
    """Given to a handler as its second argument. It changes nothing of the delivery."""

    delivery: Delivery
    make_policy: Callable[[], Policy]
    make_log: Callable[[Mapping[str, Any]], Any]
    make_breaker: Callable[[str], BreakerGuard] = no_breaker
    make_retries: Callable[[Policy | str], StepRetries] = no_retries
    steps: FinishedSteps = field(default_factory=NoSteps)
    configuration: ConfigurationReads = field(default_factory=NoConfiguration)
    make_final: Callable[[Exception], bool] = lambda _error: True
    costs: Costs = field(default_factory=NoCosts)
    #: The event's turn in its lane; None: its handler takes events as they come, or runs eagerly.
    turn: Turn | None = None

    def breaker(self, name: str, *, key: object = None) -> BreakerGuard:
        """The breaker *name*, for one call inside the handler: ``with ctx.breaker("crm"):``.

        Each *key*, such as a tenant or a host, has a breaker of its own with the settings of
        *name*. It may be any text; None and "" stand for the breaker that has no key.
        Refused, it raises CircuitOpenError, which postpones the event without using an attempt.
        """
        return self.make_breaker(keyed(name, key))

    def config(self, id: str) -> Any:
        """The value of configuration *id* in the version that the event is pinned to.

        Every run of the event sees the same version: retries, postponed runs, replays weeks later.
        It was pinned when it was published, or it is by this read, to the current version. The
        value is the reader's own. Raises ConfigurationVersionMissing if the version is not in the
        store, which no retry cures; StoreUnavailable; ConfigurationError within an event loop.
        """
        return self.configuration.read(id).value

    def config_version(self, id: str) -> str:
        """The version of configuration *id* that `config` gives; raises what that raises."""
        return self.configuration.read(id).version

    async def aconfig(self, id: str) -> Any:
        """The value that `config` gives; other coroutines go on meanwhile."""
        return (await self.configuration.aread(id)).value

    async def aconfig_version(self, id: str) -> str:
        """The version that `config_version` gives; other coroutines go on meanwhile."""
        return (await self.configuration.aread(id)).version

    def retry(
        self,
        function: Callable[..., T],
        /,
        *args: Any,
        policy: Policy | str = "event_handler",
        **kwargs: Any,
    ) -> T:
        """Call *function* with the arguments, again after a pause if it fails in passing.

        *policy* says how often and how long; only errors that the taxonomy retries are. Raises
        the last error, which is then handled as any other: if the tries are used up, if the worker
        stops, if the next pause would outlast the message or its time limit, or if the other side
        asks for a longer one than *policy* knows. The slot is held meanwhile: give what may last
        to the schedule by raising. Raises ConfigurationError for an unknown policy, a coroutine
        function, and within an event loop.
        """
        return self.make_retries(policy).call(partial(function, *args, **kwargs))

    async def aretry(
        self,
        function: Callable[..., Awaitable[T]],
        /,
        *args: Any,
        policy: Policy | str = "event_handler",
        **kwargs: Any,
    ) -> T:
        """Await *function* as `retry` calls one; other coroutines go on during its pauses."""
        return await self.make_retries(policy).acall(partial(function, *args, **kwargs))

    def register_compensation(self, action: CompensationAction) -> None:
        """Write down how to undo a step that is finished; call it right after the step.

        Should this run of the handler fail, be it killed, the steps are undone in reverse order
        before the outcome is settled. A step of a name that is there already is replaced, and is
        the last. Raises ConfigurationError for a function without ``@app.undo``, too many steps
        and within an event loop; UnserializableEvent for data that are no JSON; StoreUnavailable,
        in which case the step is undone all the same unless this process dies first.
        """
        self.steps.register(action)

    async def aregister_compensation(self, action: CompensationAction) -> None:
        """Do what `register_compensation` does; other coroutines go on meanwhile."""
        await self.steps.aregister(action)

    def set_asset(self, asset: str | None) -> None:
        """Say what this run works on, such as a machine or a file, for its facts (`asset_id`).

        Costs and the outcome that follow have it, also an error. Each run says it anew; None takes
        it back. A text of up to 500 characters; what is longer is cut.
        """
        self.delivery.set_asset(None if asset is None else _asset(asset))

    def cost(
        self,
        amount: Decimal | int | str,
        currency: str,
        *,
        to: str | None = None,
        units: Units | None = None,
        operation: str | None = None,
        config: str | None = None,
        asset: str | None = None,
    ) -> None:
        """Write down that this run has spent *amount* of *currency* (ISO 4217); call it at once.

        It stays written whatever becomes of the run: a call that failed has cost its money too.
        *to* says who got it, *units* what was used, such as ``{"model": "small-2",
        "input_tokens": 1200}``, *operation* what for, *config* the pinned configuration that
        priced it, and *asset* on what it was spent, if not on that of `set_asset`.
        Raises InvalidCost for a float, an amount below 0 and an unknown currency.
        In an async handler use `acost`.
        """
        spending = self._spending(amount, currency, to, units, operation, config, asset)
        self.costs.add(self.delivery, next(self._cost_numbers), spending)

    async def acost(
        self,
        amount: Decimal | int | str,
        currency: str,
        *,
        to: str | None = None,
        units: Units | None = None,
        operation: str | None = None,
        config: str | None = None,
        asset: str | None = None,
    ) -> None:
        """Do what `cost` does; other coroutines go on meanwhile."""
        spending = self._spending(amount, currency, to, units, operation, config, asset)
        number = next(self._cost_numbers)
        await asyncio.to_thread(self.costs.add, self.delivery, number, spending)

    def _spending(  # noqa: PLR0917 - as `cost` names them
        self,
        amount: object,
        currency: object,
        to: str | None,
        units: Units | None,
        operation: str | None,
        config: str | None,
        asset: str | None,
    ) -> Spending:
        return Spending(
            cost=cost_of(amount, currency, from_entity=self.event.tenant_id, to=to),
            units=units_of(units),
            operation=operation,
            config_id=config,
            config_version=None if config is None else self.event.config_pins.get(config),
            asset_id=None if asset is None else _asset(asset),
        )

    @cached_property
    def _cost_numbers(self) -> Iterator[int]:
        return itertools.count(1)

    def is_final(self, error: Exception) -> bool:
        """True if the event would be handled no more if the handler raised *error* now.

        By the category of the error, the policy and the attempts that are left.
        """
        return self.make_final(error)

    @cached_property
    def policy(self) -> Policy:
        """The backoff policy of this delivery, before there is an error."""
        return self.make_policy()

    @property
    def event(self) -> Event:
        """The event with all its metadata; `event.data` is its undecoded JSON value."""
        return self.delivery.event

    @property
    def attempt(self) -> int:
        """Which run of this handler for this event it is, from 1; a replay starts at 1 again."""
        return self.delivery.attempt

    @property
    def max_attempts(self) -> int:
        """How many runs the policy allows in all; a rule for the error's category may say else."""
        return self.policy.max_attempts

    @property
    def replay(self) -> int:
        """How often the event was replayed from the dead-letter queue; 0 the first time."""
        return self.delivery.position.replay

    @property
    def headers(self) -> Mapping[str, Any]:
        """The message's headers as received."""
        return self.delivery.message.headers

    @cached_property
    def log(self) -> Any:
        """A logger that says event id, handler and attempt on every line (O4)."""
        return self.make_log(
            {
                "event_id": self.event.id,
                "handler": self.delivery.handler,
                "attempt": self.attempt,
                "correlation_id": self.event.correlation_id,
            }
        )


def _asset(given: object) -> str | None:
    """*given* as the id of an asset; an empty one is none."""
    return str(given)[:LONGEST_ASSET] or None
