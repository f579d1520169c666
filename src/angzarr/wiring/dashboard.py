"""What the dashboard asks about ordered handlers, rejected commands and facts of an app."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from angzarr.aggregates.book import EventStore
from angzarr.clock import Clock
from angzarr.errors import ConfigurationError
from angzarr.projections.ordered_handler import OrderedHandler
from angzarr.runtime.processes import OncePerProcess
from angzarr.sagas.story import Hiding
from angzarr.wiring.event_store import open_event_store, open_ordering
from angzarr.wiring.operations import Operations


def hiding_of(ops: Operations) -> Hiding:
    """The hiding of secrets that the settings of the app ask for."""
    return Hiding(ops.letter_protection().redaction)


def ordered(ops: Operations) -> list[OrderedHandler]:
    """The handlers that take events in order, as a worker would know them, by name."""
    found = [
        OrderedHandler(one.name, one.order) for one in ops.known_handlers() if one.order is not None
    ]
    return sorted(found, key=lambda one: one.name)


if TYPE_CHECKING:
    from angzarr.dashboard.fact_services import FactServices
    from angzarr.dashboard.ordered_handlers import OrderedServices
    from angzarr.dashboard.services import RejectedServices


class _Closes(Protocol):
    def close(self) -> None: ...


_C = TypeVar("_C", bound=_Closes)


def open_ordered_services(ops: Operations, doors: ExitStack) -> OrderedServices:
    """The services of the app's ordered handlers; they connect when first asked."""
    from angzarr.dashboard.ordered_handlers import OrderedServices

    books = _once(lambda: open_event_store(ops.settings, ops.broker_url), doors)

    def books_if_any() -> EventStore | None:
        try:
            return books()
        except ConfigurationError:
            return None

    return OrderedServices(
        registered=lambda: ordered(ops),
        stores=_once(lambda: open_ordering(ops.settings, ops.broker_url), doors),
        books=books_if_any,
        members=lambda: ops.fleet().members(),
    )


def open_rejected_services(ops: Operations, doors: ExitStack) -> RejectedServices:
    """The services of the app's rejected commands; they connect when first asked."""
    from angzarr.dashboard.services import RejectedServices

    return RejectedServices(
        event_stores=_once(ops.open_event_stores, doors),
        hide=hiding_of(ops),
        fallback_domain=ops.settings.saga_compensation.fallback_domain,
    )


#: How long a connect or an answer may take where facts are shown beside something else.
_HASTE: Final = timedelta(seconds=1)


def open_fact_services(ops: Operations, clock: Clock, doors: ExitStack) -> FactServices:
    """The services of the app's facts; they connect when first asked."""
    from angzarr.dashboard.fact_services import FactServices

    return FactServices(
        store=_once(ops.open_fact_store, doors),
        hasty=_once(lambda: ops.open_fact_store(_HASTE), doors),
        clock=clock,
        budgets=ops.settings.costs.named_budgets(),
    )


def _once(make: Callable[[], _C], doors: ExitStack) -> Callable[[], _C]:
    """A function that gives the store that *make* opens, once, until *doors* close."""
    kept = OncePerProcess(make)

    def close() -> None:
        made = kept.forget()
        if made is not None:
            made.close()

    doors.callback(close)
    return kept.get
