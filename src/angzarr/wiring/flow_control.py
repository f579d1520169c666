"""Flow: what a fleet shares of its flow control, opened once a process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from angzarr.adapters.memory.breaker import InProcessBreakers
from angzarr.adapters.memory.limits import InProcessBudgets, InProcessLimits
from angzarr.adapters.memory.switches import InProcessSwitches
from angzarr.clock import SystemClock
from angzarr.delivery.breaker_log import BreakerLog, SwitchLog
from angzarr.delivery.context import RUNNING
from angzarr.delivery.handlers import Handler
from angzarr.delivery.poison_wave import breaker_of
from angzarr.errors import ConfigurationError
from angzarr.facts.fact import FactLog
from angzarr.resilience.breaker import BreakerControls, Breakers, BreakerSettings, Watches
from angzarr.resilience.breaker_guard import BreakerGuard, Guard, check_full_name
from angzarr.resilience.budget import Budgets
from angzarr.resilience.limit import Limits
from angzarr.resilience.switches import SwitchControls, Switches
from angzarr.resilience.taxonomy import ILLNESS, classify
from angzarr.settings.delivery import PoisonWaveSettings
from angzarr.wiring import dead_letters as letter_wiring
from angzarr.wiring import stores as wiring
from angzarr.wiring.context import AppContext

#: A wave is judged by its share alone: failures in a row are common in a healthy domain.
_NEVER = 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """The flow control of this process or, with a flow store, of the fleet."""

    breakers: Breakers
    switches: Switches
    budgets: Budgets
    limits: Limits
    #: For people; None where each process has its own.
    controls: BreakerControls | None
    switch_controls: SwitchControls | None
    close: Callable[[], object]


def open_flow(context: AppContext, facts: Callable[[], FactLog]) -> Flow:
    """The flow control of this process; it connects when first needed."""
    flow = context.settings.flow
    meters = wiring.breaker_meters()
    watch = Watches((BreakerLog(facts=facts), meters))
    of_breakers = (breaker_settings(context), flow.default_breaker(), watch)
    of_budgets = (flow.named_budgets(), flow.default_budget())
    url = flow_store(context)
    if url is None:
        breakers = InProcessBreakers(*of_breakers)
        opened = Flow(
            breakers=breakers,
            switches=InProcessSwitches(),
            budgets=InProcessBudgets(*of_budgets),
            limits=InProcessLimits(),
            controls=None,
            switch_controls=None,
            close=lambda: None,
        )
    else:
        adapter = wiring.redis_adapter
        line = adapter("angzarr.adapters.redis.flow_line").FlowLine(
            url, prefix=context.settings.prefix
        )
        breakers = adapter("angzarr.adapters.redis.breaker").RedisBreakers(line, *of_breakers)
        switches = adapter("angzarr.adapters.redis.switches").RedisSwitches(
            line, SwitchLog(facts=facts)
        )
        opened = Flow(
            breakers=breakers,
            switches=switches,
            budgets=adapter("angzarr.adapters.redis.budget").RedisBudgets(line, *of_budgets),
            limits=adapter("angzarr.adapters.redis.limit").RedisLimits(line),
            controls=breakers,
            switch_controls=switches,
            close=line.close,
        )
    meters.observe(breakers)
    return opened


def flow_store(context: AppContext) -> str | None:
    """The Redis that the fleet shares: as configured, else the claim store if it is one."""
    if context.settings.flow.store:
        return str(context.settings.flow.store)
    try:
        url = wiring.store_url(context.settings, context.broker_url)
    except ConfigurationError:  # an app that only publishes needs no claim store
        return None
    return url if url.startswith(("redis:", "rediss:")) else None


def breaker_settings(context: AppContext) -> Mapping[str, BreakerSettings]:
    """The settings of every breaker that has some of its own, by name."""
    waves = context.settings.poison_wave
    domains = letter_wiring.domains_to_read(context)
    guards = {breaker_of(domain): _of_wave(waves) for domain in domains} if waves.enabled else {}
    return {**context.settings.flow.named_breakers(), **guards}


def guard_of(
    context: AppContext,
    flow: Callable[[], Flow],
    handler: Handler | None,
    guard: Guard | str,
    fallback: Callable[..., Any] | None = None,
) -> BreakerGuard:
    """A breaker around calls, whose errors are judged by *handler*'s rules too.

    Rules for one event type hold for the calls of its deliveries.
    """

    def is_ill(error: Exception) -> bool:
        own = (handler.rules, context.rules) if handler is not None else (context.rules,)
        name = handler.name if handler is not None else ""
        running = RUNNING.get()
        type_ = running.event.type if running is not None else ""
        seen = classify(error, *own, now=SystemClock().now(), handler=name, event_type=type_)
        return seen.category in ILLNESS

    return BreakerGuard(
        guard=Guard(check_full_name(guard)) if isinstance(guard, str) else guard,
        breakers=lambda: flow().breakers,
        is_ill=is_ill,
        fallback=fallback,
        whose=_turn,
    )


def _turn() -> str:
    running = RUNNING.get()
    return running.turn if running is not None else ""


def _of_wave(given: PoisonWaveSettings) -> BreakerSettings:
    return BreakerSettings(
        window=given.window,
        min_calls=given.least,
        failure_share=given.share,
        failures_in_a_row=_NEVER,
        open_for=given.hold,
        ramp_up=given.hold * 0,
    )
