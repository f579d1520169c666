"""From a projection of an app to its rebuild and its reset.

A reset empties the read model of an ordered handler or projection, and its lanes begin anew (P4).
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import Any, Final, NamedTuple

from angzarr.aggregates.book import EventStore
from angzarr.clock import SystemClock
from angzarr.errors import AngzarrError, ConfigurationError, RebuildError, text_of
from angzarr.events.event import Event
from angzarr.facts.act import ActKind
from angzarr.projections.projection import Projection, handler_name
from angzarr.projections.shadow_table import Plan, ShadowTable
from angzarr.wiring.event_store import (
    check_books,
    check_ordering,
    open_event_store,
    open_ordering,
)
from angzarr.wiring.operations import Operations
from angzarr.wiring.stores import extra


class Site(NamedTuple):
    """Where a projection is rebuilt, from what, and into what."""

    plan: Plan
    store: EventStore
    green: ShadowTable


@contextmanager
def open_site(ops: Operations, name: str, *, in_place: bool) -> Iterator[Site]:
    """Give what rebuilds the projection *name* of the app; connects when first used.

    Raises ConfigurationError, MissingExtra, RebuildError.
    """
    plan, kind = plan_of(ops, name)
    if not in_place and not plan.tables:
        raise RebuildError(_no_tables(name))
    url = _ordering(ops)
    engines = importlib.import_module("angzarr.adapters.sql.engine.engine").ENGINES
    with ExitStack() as held, extra("psycopg"):
        stores = held.enter_context(closing(open_ordering(ops.settings, ops.broker_url)))
        stores.checkpoints.get(plan.handler)  # makes or checks the tables
        store = held.enter_context(closing(open_event_store(ops.settings, ops.broker_url)))
        lanes = engines.borrow(url)
        held.callback(lanes.close)
        green = _green(lanes.engine, plan, kind, in_place=in_place)
        held.callback(green.close)
        yield Site(plan, store, green)


def plan_of(ops: Operations, name: str) -> tuple[Plan, type[Projection]]:
    """The plan to rebuild the projection *name*, and its class; raises RebuildError."""
    handler = ops.find_handler(handler_name(name))
    if handler is None or handler.order is None or name not in ops.context.projections:
        known = ", ".join(sorted(ops.context.projections)) or "none"
        msg = f"the app has no projection {name!r}; it has: {known}"
        raise RebuildError(msg)
    kind, order = ops.context.projections[name], handler.order
    plan = Plan(
        projection=name,
        handler=handler.name,
        domains=tuple(sorted(order.domains)),
        first=order.first,
        tables=kind.table_names(),
    )
    return plan, kind


def _green(engine: Any, plan: Plan, kind: type[Projection], *, in_place: bool) -> Any:
    def work(event: Event, connection: Any) -> None:
        if event.type in kind.methods.handles:
            kind(connection, event).project(kind.decoded(event))

    clock = SystemClock()
    if not in_place:
        sql = importlib.import_module("angzarr.adapters.sql.rebuild.shadow")
        return sql.SqlShadowTables(engine, plan, work, clock)
    sql = importlib.import_module("angzarr.adapters.sql.rebuild.in_place")
    return sql.RebuildInPlace(
        engine, plan, work, clock, lambda connection: kind(connection).reset()
    )


def _ordering(ops: Operations) -> str:
    """The URL of the order; raises ConfigurationError where there is nothing to read."""
    ordering = check_ordering(ops.settings, ops.broker_url)
    books = check_books(ops.settings, ops.broker_url)
    if "memory://" in {ordering, books}:
        msg = (
            "event books and lanes that are in the memory of one process are gone with it: there"
            " is nothing to rebuild from; name databases in books and ordering.url"
        )
        raise ConfigurationError(msg)
    return ordering


def _no_tables(name: str) -> str:
    return (
        f"{name} says nothing of its tables, so a rebuild cannot make others beside them: name them"
        " in `tables` of its class, or rebuild it in place, where readers see it grow (--in-place)"
    )


_log: Final = logging.getLogger("angzarr.projections")


def reset_projection(ops: Operations, name: str, *, by: str = "") -> int:
    """Let the handler of task *name* begin anew; return how many lanes it had.

    Read model, checkpoint and lanes are cleared in one transaction; parked events stay. Raises
    ConfigurationError for a projection that cannot empty its read model, and StoreUnavailable.
    """
    with ops.acts.recording(ActKind.PROJECTION_RESET, name, by=by, tool_id=name) as act:
        lanes: int = ops.ordering.lanes.reset(name, _emptying(ops, name))
        _log.warning("projection_reset: %s begins anew, of %d lanes, by %s", name, lanes, by or "?")
        act.done({"lanes": lanes})
    return lanes


def _emptying(ops: Operations, name: str) -> Callable[[Any], object] | None:
    """A function that empties the read model of the projection with task *name*, if it is one."""
    for kind in ops.context.projections.values():
        if handler_name(kind.name) == name:
            return partial(_empty, kind)
    return None


def _empty(kind: type[Projection], connection: Any) -> None:
    try:
        kind(connection).reset()
    except AngzarrError:
        raise
    except Exception as error:
        if getattr(error, "connection_invalidated", False):
            raise  # that is an outage
        said = text_of(error).partition("\n")[0]
        msg = f"the read model of {kind.name} cannot be emptied, and nothing is reset: {said}"
        raise ConfigurationError(msg) from error
