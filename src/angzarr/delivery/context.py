"""Context: what a handler may know about the delivery it runs in (spec D8)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from angzarr.delivery.delivery import Delivery
from angzarr.errors import ConfigurationError
from angzarr.events.event import Event
from angzarr.resilience.backoff import Policy
from angzarr.resilience.breaker_guard import BreakerGuard

#: The delivery whose handler runs here: what it publishes belongs to the same flow (spec D1).
RUNNING: ContextVar[Delivery | None] = ContextVar("angzarr_running", default=None)


def no_breaker(name: str) -> BreakerGuard:
    """Refuse: this context belongs to no app."""
    msg = f"there is no breaker {name!r} here: this context belongs to no app"
    raise ConfigurationError(msg)


@dataclass(frozen=True, kw_only=True)
class Context:
    """Given to a handler as its second argument. It reads; it changes nothing."""

    delivery: Delivery
    policy: Policy
    make_log: Callable[[Mapping[str, Any]], Any]
    make_breaker: Callable[[str], BreakerGuard] = no_breaker

    def breaker(self, name: str) -> BreakerGuard:
        """Return the breaker *name*, for one call inside the handler: ``with ctx.breaker("crm"):``.

        Refused, it raises CircuitOpenError, which postpones the event without using an attempt.
        """
        return self.make_breaker(name)

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
        """How many runs the policy allows in all."""
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
