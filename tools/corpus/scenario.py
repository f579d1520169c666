"""Scenario: one way to fail, with the handler that really fails so. `@scenario` registers it.

The decorated function is the handler. Its module is the theme that it belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tools.corpus.cases import Case

from angzarr.resilience.taxonomy import Rule


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A handler that fails, what it is sent, and what its letter is called in each situation."""

    name: str
    handler: Callable[..., Any]
    cases: tuple[Case, ...]
    #: Whether rules are measured by it and never made for it.
    held_out: bool = False
    #: The server of tools/servers without which it cannot fail so; empty: it needs none.
    needs: str = ""
    #: The event's data, as a publisher sends it.
    event: Mapping[str, Any] = field(default_factory=dict)
    #: How the message is taken off its queue; None: as a worker does it.
    road: Callable[[Any, Scenario], Any] | None = None
    #: What writes the letter where no worker of ours does: bytes and content type.
    written: Callable[[], tuple[bytes, str]] | None = None
    rules: tuple[Rule, ...] = ()
    #: Further options of the handler's registration.
    options: Mapping[str, Any] = field(default_factory=dict)
    #: Changes the message as it is published: (body, headers) → the same, edited.
    damage: Callable[[bytes, dict[str, Any]], tuple[bytes, dict[str, Any]]] | None = None


#: What most scenarios are sent.
ORDER: Mapping[str, Any] = {"order_id": "o-4711", "customer_id": "c-12", "sku": "SKU-7", "total": 3}

SCENARIOS: dict[str, Scenario] = {}


def scenario(
    *cases: Case | Sequence[Case],
    event: Mapping[str, Any] = ORDER,
    **fields: Any,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated handler; *cases* may be lists of cases."""

    def register(handler: Callable[..., Any]) -> Callable[..., Any]:
        *_, package, theme = handler.__module__.split(".")
        name = f"{theme}.{handler.__name__}"
        if name in SCENARIOS:
            raise ValueError(f"two scenarios are called {name}")
        flat = [one for given in cases for one in ([given] if isinstance(given, Case) else given)]
        SCENARIOS[name] = Scenario(
            name=name,
            handler=handler,
            cases=tuple(flat),
            held_out=package == "held_out",
            event=event,
            **fields,
        )
        return handler

    return register
