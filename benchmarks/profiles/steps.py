"""Steps: where ours goes within the child, told by a stopwatch around each step of the road."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from angzarr.adapters.celery.publish.followers import CeleryFollowers
from angzarr.adapters.celery.worker import task as tasks
from angzarr.adapters.celery.worker import tracer
from angzarr.adapters.celery.worker.runtime import runtime_of
from angzarr.adapters.opentelemetry.traces import OpenTelemetryHook
from angzarr.adapters.structlog.hook import LogHook
from angzarr.adapters.structlog.own_lines import StructlogFactLog
from angzarr.delivery import settle
from angzarr.delivery.delivery import Delivery
from angzarr.delivery.executor import DeliveryExecutor
from angzarr.delivery.invoke import Hooks
from angzarr.delivery.settle import Settler
from angzarr.resilience.claim_memory import CompletedCache
from profiles.course import one_round
from profiles.sides import NAME, Side


class Stopwatch:
    """Time that each step takes by itself, without the steps within it."""

    def __init__(self) -> None:
        self.own: dict[str, int] = {}
        self._inner: list[int] = [0]

    def around(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def measured(*args: Any, **kwargs: Any) -> Any:
            self._inner.append(0)
            began = time.perf_counter_ns()
            try:
                return call(*args, **kwargs)
            finally:
                took = time.perf_counter_ns() - began
                self.own[name] = self.own.get(name, 0) + took - self._inner.pop()
                self._inner[-1] += took

        return measured

    def patched(self, name: str, owner: Any, attribute: str) -> Any:
        """Return a patch that puts this watch around a function, a method or a property."""
        real = getattr(owner, attribute)
        if isinstance(real, property):
            return patch.object(owner, attribute, property(self.around(name, real.__get__)))
        return patch.object(owner, attribute, self.around(name, real))


def seams(app: Any) -> list[tuple[str, Any, str]]:
    """Return the steps to be told apart; what is between them belongs to the step around them."""
    return [
        ("the tracer", tracer.RoadTracer, "__call__"),
        ("AngzarrTask", tasks.AngzarrTask, "deliver"),
        ("read the envelope", tasks, "delivery_of"),
        ("road, hold", DeliveryExecutor, "take"),
        ("decide", DeliveryExecutor, "decide"),
        ("claim: fingerprint", Delivery, "claim"),
        ("claim, settle: cache and stub", CompletedCache, "claim"),
        ("claim, settle: cache and stub", CompletedCache, "settle"),
        ("hooks", Hooks, "attempt"),
        ("hooks", Hooks, "settled"),
        ("hooks: log", LogHook, "attempt"),
        ("hooks: log", LogHook, "settled"),
        ("hooks: telemetry", OpenTelemetryHook, "attempt"),
        ("hooks: telemetry", OpenTelemetryHook, "settled"),
        ("breaker", type(runtime_of(app).executor().admission.breakers), "admit"),
        ("breaker", type(runtime_of(app).executor().admission.breakers), "record"),
        ("settle", Settler, "settle"),
        ("followers", CeleryFollowers, "publish"),
        ("fact: build", settle, "fact_of"),
        ("fact: render and write", StructlogFactLog, "append"),
    ]


def show_steps(side: Side, rounds: int) -> None:
    """Print what each step of the child took."""
    watch = Stopwatch()
    handler = side.app.handlers.get(NAME)
    with ExitStack() as patches:
        for name, owner, attribute in seams(side.app):
            patches.enter_context(watch.patched(name, owner, attribute))
        bind = watch.around("decode the event", handler.bind)
        patches.enter_context(_replaced(handler, "bind", bind))
        for _ in range(rounds):
            one_round(side, lambda call: watch.around("unpickling, decoding", call)())
    events = rounds * len(side.raw) * 1000
    print(f"\n{'the child, step by step':32}{'us':>10}")
    for name, took in watch.own.items():
        print(f"{name:32}{took / events:10.1f}")
    print(f"{'sum':32}{sum(watch.own.values()) / events:10.1f}")


@contextmanager
def _replaced(owner: Any, attribute: str, value: Any) -> Iterator[None]:
    """Replace a field of a frozen object."""
    real = getattr(owner, attribute)
    object.__setattr__(owner, attribute, value)
    yield
    object.__setattr__(owner, attribute, real)
