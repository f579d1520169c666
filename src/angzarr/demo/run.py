"""One run of the demo: its own names on every server, its settings, and the example it plays."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml  # type: ignore[import-untyped]
from celery import Celery

import angzarr as package
from angzarr.delivery.handlers import Handlers
from angzarr.demo.journal import Journal, JournalHook
from angzarr.errors import ConfigurationError
from angzarr.settings.settings import CONFIG_VARIABLE
from angzarr.wiring import stores as wiring

#: Names the folder of the run in the environment of its processes.
VARIABLE: Final = "DEMO_RUN"
#: Handlers of `anything`, the example for events of unknown types.
FOREIGN: Final = ("anything.archive", "anything.index", "anything.tell")

#: Short waits, so that people need not: three runs within about a second.
_POLICY: Final = {"base": 0.2, "max_delay": 0.6, "max_attempts": 3}
_POLICIES: Final = ("default", "external_api", "crm_sync", "webhook")
_ANALYSIS: Final = {
    "max_replays": 2,
    "first_delay": 1.5,
    "longest_delay": 3,
    "answer_deadline": 300,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run. `types` are the event types of a file; empty: the examples' own events.

    `example` names an example with an app of its own, which is run instead.
    """

    id: str
    folder: str
    broker: str
    seed: int
    types: Sequence[str] = ()
    example: str = ""

    @property
    def embedded(self) -> bool:
        """Whether all of it lives in this process."""
        return wiring.is_embedded(self.broker)

    @property
    def name(self) -> str:
        """The prefix of this run's queues and keys on shared servers."""
        return f"angzarr-demo-{self.id}"

    @property
    def path(self) -> Path:
        """The folder with the journal, the SQLite files and the logs."""
        return Path(self.folder)

    @property
    def journal(self) -> Path:
        """The file of the journal."""
        return self.path / "journal.db"

    @property
    def facts(self) -> str:
        """The database of the facts."""
        return f"sqlite:///{self.path / 'facts.db'}"

    def domain(self, name: str) -> str:
        """A domain *name* of this run: a shared queue is neither read nor removed."""
        return f"demo-{self.id}-{name}"


def read(environment: Mapping[str, str] = os.environ) -> Run:
    """The run that this process belongs to."""
    folder = Path(environment[VARIABLE])
    written = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    return Run(**written, broker=environment["CELERY_BROKER_URL"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where a run keeps things, as its options say; None: by default."""

    store: str | None = None
    dlq: Mapping[str, Any] = field(default_factory=dict)
    ledger: str | None = None
    books: str | None = None


def write(run: Run, places: Places) -> None:
    """Write what the run's processes read: the run itself and the settings."""
    told = {name: value for name, value in asdict(run).items() if name != "broker"}
    (run.path / "run.json").write_text(json.dumps(told), encoding="utf-8")
    (run.path / "outside.db").touch()
    chosen = settings(run, places)
    (run.path / "angzarr.yaml").write_text(yaml.safe_dump(chosen), encoding="utf-8")


def settings(run: Run, places: Places) -> dict[str, Any]:
    """The settings of *run*; a setting that is None is left to the broker's default."""
    own = {
        name: f"sqlite:///{run.path / name}.db" if run.embedded else None
        for name in ("claims", "books")
    }
    chosen = {
        "store": places.store or own["claims"],
        "ledger": places.ledger or f"sqlite:///{run.path / 'ledger.db'}",
        "books": places.books or own["books"],
        "prefix": run.name,
        "dlq": dict(places.dlq),
        "facts": {"url": run.facts, "log": False},
        "retry": {"policies": {name: dict(_POLICY) for name in _POLICIES}},
        "analysis": _ANALYSIS,
        "configuration": {"url": f"sqlite:///{run.path / 'configuration.db'}"}
        if run.embedded
        else {},
        "routes": {taken: [{"handler": name} for name in FOREIGN] for taken in run.types},
    }
    return {name: value for name, value in chosen.items() if value}


def configure(app: Celery, run: Run) -> None:
    """Give *app* names of the run's own on the broker, and its logs where the run has them."""
    app.conf.update(
        task_default_queue=run.name,
        worker_redirect_stdouts=False,
        worker_hijack_root_logger=not run.embedded,
    )
    if run.broker.startswith(("redis", "rediss")):
        app.conf.broker_transport_options = {"global_keyprefix": f"{run.name}:"}


def environment(run: Run, outer: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of the run's processes: *outer* without settings of other apps."""
    kept = {
        name: value for name, value in outer.items() if not name.startswith(("ANGZARR_", "CELERY_"))
    }
    return kept | {
        CONFIG_VARIABLE: str(run.path / "angzarr.yaml"),
        VARIABLE: run.folder,
        "CELERY_BROKER_URL": run.broker,
        "OUTSIDE_FILE": str(run.path / "outside.db"),
        "OUTSIDE_SEED": str(run.seed),
    }


class Example(NamedTuple):
    """Modules in the folder of the examples.

    With event books `script` has ``opening(prefix)``, ``wishes(prefix, count, seed)`` and
    ``reckon(asks)``, and names in STORY a command of a saga; without, ``invoices(count, seed)``.
    """

    app: str
    script: str
    books: bool = True


EXAMPLES: Final = {
    "billing": Example("billing", "billing_month", books=False),
    "orders": Example("order_desk", "order_desk_day"),
    "poker": Example("card_room", "card_room_evening"),
}


def check_name(name: str) -> str:
    """The given *name* if it is an example; raises ConfigurationError with all that are."""
    if name not in EXAMPLES:
        msg = f"there is no example {name!r}: use {', '.join(sorted(EXAMPLES))}"
        raise ConfigurationError(msg)
    return name


def folder() -> Path:
    """The folder of the examples: inside the installed package, or of this checkout."""
    inside = Path(package.__file__).parent
    for found in (inside / "examples", inside.parents[1] / "examples"):
        if (found / "orders.py").exists():
            return found
    msg = "the examples that the demo runs are missing: run it in a checkout of the project"
    raise ConfigurationError(msg)


def enter() -> None:
    """Let the examples import each other by name, as in a folder of a user's."""
    path = str(folder())
    if path not in sys.path:
        sys.path.insert(0, path)


def app_of(run: Run) -> Any:
    """The example's app, with names of the run's own on every server."""
    enter()
    app: Celery = importlib.import_module(EXAMPLES[run.example].app).app
    app.run, app.journal = run, Journal(run.journal)
    context = app.ops.context
    context.substitute(hooks=(*context.hooks, JournalHook(app.journal)))
    configure(app, run)
    _take_domains(app, run)
    read_own_letters(app)
    return app


def read_own_letters(app: Celery) -> None:
    """Let the run read the letters of its own domains: others are none of its business."""

    def own() -> list[str]:
        app.finalize(auto=True)
        return sorted(app.handlers.domains())

    app.ops.dead_letter_domains = own


def _take_domains(app: Celery, run: Run) -> None:
    """Let each handler's letters go into a queue of the run's own; books keep their domains."""
    registered = app.handlers
    app.ops.context.substitute(handlers=Handlers())
    for handler in registered:
        own = run.domain(handler.domain) if handler.domain else None
        app.handlers.add(replace(handler, domain=own))


def script_of(run: Run) -> Any:
    """The module with the example's traffic and account."""
    return importlib.import_module(EXAMPLES[run.example].script)
