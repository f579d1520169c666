"""Which ordered handler a command is about, which of its lanes, and where those are kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import click

from angzarr.aggregates.book import Address, EventStore, check_address
from angzarr.errors import ConfigurationError, InvalidDomainName, InvalidRoot
from angzarr.projections.checkpoint import OrderingStores
from angzarr.projections.ordered_handler import Ordered
from angzarr.runtime.text import printable
from angzarr.wiring.application import Application
from angzarr.wiring.dashboard import ordered
from angzarr.wiring.event_store import open_event_store
from angzarr.wiring.ordering import open_ordering


def find(app: Application, name: str) -> Ordered:
    """Return the one that is called *name*, or has it as task name; refuses an unknown name."""
    known = ordered(app)
    for one in known:
        if name in (one.name, one.task):
            return one
    there = ", ".join(one.name for one in known) or "none"
    msg = f"nothing that takes events in order is called {name!r}; there are: {there}"
    raise click.ClickException(printable(msg))


@contextmanager
def opened(app: Application) -> Iterator[OrderingStores]:
    """Open lanes and checkpoints of *app* for a block; raises ConfigurationError."""
    with closing(open_ordering(app.settings, app.broker_url)) as stores:
        yield stores


@contextmanager
def opened_books(app: Application) -> Iterator[EventStore | None]:
    """Open what reads the event books of *app* for a block; None: it keeps none."""
    try:
        store = open_event_store(app.settings, app.broker_url)
    except ConfigurationError:
        yield None
        return
    with closing(store):
        yield store


class Place(click.ParamType[Address]):
    """An aggregate: DOMAIN/ROOT[@EDITION]; the last @ begins the edition, which may be empty."""

    name = "aggregate"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Address:
        """Return the address that *value* names."""
        domain, _, rest = str(value).partition("/")
        root, at, edition = rest.rpartition("@")
        if not at:
            root, edition = rest, ""
        try:
            return check_address(Address(domain, root, edition))
        except (InvalidDomainName, InvalidRoot) as error:
            self.fail(f"{value!r} is not a DOMAIN/ROOT[@EDITION]: {error}", param, ctx)


def check_domain_of(one: Ordered, address: Address) -> Address:
    """Return *address* if *one* takes events of its domain, else refuse it."""
    if address.domain not in one.order.domains:
        listed = ", ".join(sorted(one.order.domains))
        msg = f"{one.name} takes the events of {listed}, not of {address.domain}"
        raise click.ClickException(msg)
    return address
