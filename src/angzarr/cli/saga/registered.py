"""What an app registers of sagas, process managers and aggregates, and where it is sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from rich.table import Table

from angzarr.aggregates.aggregate import AggregateType
from angzarr.aggregates.command import task_of
from angzarr.cli.dlq.entry_view import console, safe
from angzarr.delivery.handlers import Handler
from angzarr.sagas.rejection import notification_task
from angzarr.sagas.saga import ProcessManager
from angzarr.wiring.application import Application

_SAGA: Final = "saga."


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A saga, a process manager or an aggregate."""

    kind: str
    name: str
    #: Whose events a saga takes; empty: everybody's.
    source: str = ""
    reacts_to: tuple[str, ...] = ()
    handles: tuple[str, ...] = ()
    #: The rejected commands that it answers.
    rejected: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()


def registered(app: Application) -> list[Registered]:
    """Return what *app* registers, as a worker would know it: sagas first."""
    handlers = list(app.known_handlers())
    kinds = [_of_aggregate(app, app.aggregates[domain]) for domain in sorted(app.aggregates)]
    managers = [one for one in kinds if one.reacts_to]
    return [*_sagas(app, handlers), *managers, *(one for one in kinds if not one.reacts_to)]


def _sagas(app: Application, handlers: Iterable[Handler]) -> Iterator[Registered]:
    """Yield sagas, which are known by their handlers."""
    found: dict[tuple[str, str], list[Handler]] = {}
    for one in handlers:
        ending = f".{one.event_type}"
        if one.event_type and one.name.startswith(_SAGA) and one.name.endswith(ending):
            name = one.name.removeprefix(_SAGA).removesuffix(ending)
            found.setdefault((name, one.domain or ""), []).append(one)
    for (name, source), of_it in sorted(found.items()):
        yield Registered(
            kind="saga",
            name=name,
            source=source,
            reacts_to=tuple(one.event_type or "" for one in of_it),
            queues=_queues(app, (one.name for one in of_it)),
        )


def _of_aggregate(app: Application, kind: AggregateType) -> Registered:
    methods, domain = kind.methods, kind.domain
    manages = issubclass(kind, ProcessManager)
    tasks = [notification_task(domain), *(task_of(domain, one) for one in methods.handles)]
    if manages:
        tasks += [f"process.{domain}.{one}" for one in methods.reacts_to]
    return Registered(
        kind="process manager" if manages else "aggregate",
        name=domain,
        reacts_to=tuple(methods.reacts_to) if manages else (),
        handles=tuple(methods.handles),
        rejected=tuple(f"{one.type} by {one.domain}" for one in methods.rejected),
        queues=_queues(app, tasks),
    )


def _queues(app: Application, tasks: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({app.queue_for(task) for task in tasks}))


def registered_json(found: Iterable[Registered]) -> list[dict[str, Any]]:
    """Return *found* as JSON objects."""
    return [asdict(one) for one in found]


def print_registered(found: list[Registered]) -> None:
    """Print what is registered."""
    out = console()
    if not found:
        out.print("this app registers no sagas, process managers or aggregates")
        return
    table = Table("kind", "name", "reacts to", "handles", "answers rejections of", "queue")
    for one in found:
        of = f" of {one.source}" if one.source else ""
        table.add_row(
            safe(one.kind), safe(one.name), safe(", ".join(one.reacts_to) + of),
            safe(", ".join(one.handles)), safe(", ".join(one.rejected)),
            safe(", ".join(one.queues)),
        )  # fmt: skip
    out.print(table)
