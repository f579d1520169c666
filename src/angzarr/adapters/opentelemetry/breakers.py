"""Metrics of breakers (spec O1): where each stands, and how often it opened."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Final

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from angzarr.adapters.opentelemetry.propagation import SCOPE
from angzarr.resilience.breaker import BreakerRefusal, Breakers, Phase, Transition

_NUMBERS: Final = {Phase.CLOSED: 0, Phase.OPEN: 1, Phase.HALF_OPEN: 2, Phase.ISOLATED: 3}


class BreakerMeters:
    """Fulfils `BreakerWatch`: an opening is counted by the one process that caused it.

    Each process tells the state of the breakers that it uses, as it last heard of it.
    """

    def __init__(self, provider: MeterProvider | None = None) -> None:
        self._meter = metrics.get_meter(SCOPE, meter_provider=provider)
        self._opens = self._meter.create_counter(
            "circuit_breaker_opens", description="Times that a breaker opened"
        )

    def changed(self, transition: Transition, /) -> None:
        """Count an opening."""
        if transition.after is Phase.OPEN:
            self._opens.add(1, {"service": transition.name})

    def refused(self, refusal: BreakerRefusal, /) -> None:
        """Do nothing: a refusal is told by its fact and by the postponed delivery's line."""

    def observe(self, breakers: Breakers) -> None:
        """Tell the states of *breakers* from now on, for as long as somebody holds them."""
        self._meter.create_observable_gauge(
            "circuit_breaker_state",
            callbacks=[_callback(weakref.ref(breakers))],
            description="0 closed, 1 open, 2 half-open, 3 isolated",
        )


def _callback(
    held: Callable[[], Breakers | None],
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(_options: CallbackOptions) -> Iterable[Observation]:
        breakers = held()
        phases = {} if breakers is None else breakers.phases()
        return [Observation(_NUMBERS[phase], {"service": name}) for name, phase in phases.items()]

    return observe
