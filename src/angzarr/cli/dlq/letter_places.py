"""Opens the dead-letter queues that a person names: by URL, or `app` for the app's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import click

from angzarr.cli.application import load_application
from angzarr.dead_letters.fallback_queue import SPOOL
from angzarr.dead_letters.names import queue_name
from angzarr.dead_letters.queue import DeadLetterQueue
from angzarr.settings.dlq_urls import FORMS, Place, place_of, read_url
from angzarr.wiring.dead_letters import open_backend, open_unprotected, places
from angzarr.wiring.spool import open_queue

#: What stands for the app's configured queue.
APP: Final = "app"
#: How a queue may be named, for --help.
NAMES: Final = f"'{APP}', or {FORMS}."


def find_place(name: str, app_name: str | None) -> Place:
    """Return the place that *name* means, not opened yet."""
    if name != APP:
        return read_url(name)
    app = load_application(app_name)
    found = [
        place_of(one, app.settings.dlq, app.broker_url)
        for one in places(app.settings, app.broker_url)
    ]
    # Its spool is no queue that is read, but what is put there comes to its queues.
    shown = " or ".join(one.shown for one in found if one.backend != SPOOL)
    return replace(
        found[0],
        shown=f"the app's queue ({shown})",
        spots=frozenset().union(*(one.spots for one in found)),
    )


@contextmanager
def opened(
    name: str, place: Place, app_name: str | None, *, group: str | None = None
) -> Iterator[DeadLetterQueue]:
    """Open *place*, which *name* means; what it holds goes back when the block is left."""
    if name == APP:
        app = load_application(app_name)
        queue = open_unprotected(app.settings, app.broker_url)  # a signature vouches for its writer
    elif place.backend == SPOOL:
        queue = open_queue(place.spool(), create_missing=place.create_missing)
    else:
        changes = {"kafka_group": group} if group else {}
        queue = open_backend(place.backend, place.settings(**changes), "")
    try:
        yield queue
    finally:
        queue.close()


def check_two_places(source: Place, target: Place) -> None:
    """Refuse to move letters round in a circle."""
    if source.spots & target.spots:
        msg = f"--from and --to are one place, {target.shown}: letters would go round for ever"
        if SPOOL in (source.backend, target.backend) and source.backend != target.backend:
            msg += "; `angzarr dlq spool forward` takes letters out of an app's own spool"
        raise click.UsageError(msg)


def chosen_domains(
    domains: Sequence[str], *, all_domains: bool, app_name: str | None
) -> Sequence[str]:
    """Return the domains that a person named, each once."""
    if bool(domains) == all_domains:
        msg = "choose letters with --domain (repeatable) or --all-domains of the app"
        raise click.UsageError(msg)
    found = load_application(app_name).dead_letter_domains() if all_domains else domains
    by_queue: dict[str, str] = {}
    for domain in found:
        other = by_queue.setdefault(queue_name(domain), domain)
        if other != domain:
            msg = f"domains {other!r} and {domain!r} share the queue {queue_name(domain)}: name one"
            raise click.UsageError(msg)
    return list(by_queue.values())
