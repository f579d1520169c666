"""Projection: keeps a read model by the events that it handles (spec P1).

What it writes and the move of its lane are one transaction: an event has its effects exactly once.
`MAX_RETRIES` and `RETRY_BACKOFF_BASE` are deprecated and yield to `retry_policy`.
"""

from __future__ import annotations

import inspect
import logging
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from angzarr.aggregates.decorators import Method, Methods, methods_of
from angzarr.errors import ConfigurationError
from angzarr.events.event import Event, event_type_of
from angzarr.resilience.backoff import Policy
from angzarr.resilience.policies import ExponentialBackoff

_log: Final = logging.getLogger("angzarr.projections")

_TABLE: Final = re.compile(r"[^\W\d]\w*")


class Projection:
    """A subclass marks methods with `@handles`; what they return is not heeded.

    There is an instance for each event. The methods write through `self.connection`, wait for
    nothing and write nowhere else: what they write elsewhere is not undone where they fail.
    """

    #: Set where the class is registered.
    name: ClassVar[str] = ""
    #: How often and how patiently an event is tried: a policy or its name. None: "projection",
    #: three retries after 2, 4 and 8 s.
    retry_policy: ClassVar[Policy | str | None] = None
    #: Others, by the type of event.
    retry_policies: ClassVar[Mapping[Any, Policy | str]] = {}
    #: The read model: names of tables or SQLAlchemy's Tables; those that others refer to first.
    tables: ClassVar[Sequence[Any]] = ()
    methods: ClassVar[Methods]

    #: SQLAlchemy's, within the transaction in which the lane moves; None where lanes are in memory.
    connection: Any
    #: The event that is being handled, with its metadata; there is none in a reset.
    event: Event

    def __init_subclass__(cls, **options: Any) -> None:
        """Read what the methods declare."""
        super().__init_subclass__(**options)
        cls.methods = methods_of(cls)

    def __init__(self, connection: Any, event: Event | None = None) -> None:
        self.connection = connection
        if event is not None:
            self.event = event

    @classmethod
    def check(cls) -> None:
        """Refuse a class that cannot work; raises ConfigurationError."""
        if not cls.methods.handles:
            msg = f"{cls.__qualname__} handles nothing: mark a method with @handles(SomeEvent)"
            raise ConfigurationError(msg)
        for kind in ("applies", "reacts_to", "rejected"):
            if getattr(cls.methods, kind):
                msg = f"{cls.__qualname__} is a projection and cannot use @{kind}: use @handles"
                raise ConfigurationError(msg)
        for method in cls.methods.handles.values():
            _check_method(cls, method)
        for event_type in cls.policies_by_type():
            if event_type not in cls.methods.handles:
                msg = f"{cls.__qualname__}.retry_policies: it does not handle {event_type!r}"
                raise ConfigurationError(msg)
        cls.table_names()

    @classmethod
    def policies_by_type(cls) -> dict[str, Policy | str]:
        """Its own policies by type of event; raises ConfigurationError."""
        if not isinstance(cls.retry_policies, Mapping):
            msg = f"{cls.__qualname__}.retry_policies maps types of events to policies"
            raise ConfigurationError(msg)
        return {event_type_of(given): policy for given, policy in cls.retry_policies.items()}

    @classmethod
    def table_names(cls) -> tuple[str, ...]:
        """The names of its tables; raises ConfigurationError for what is none."""
        if isinstance(cls.tables, str):
            msg = f'{cls.__qualname__}.tables is a list of names: write tables = ("{cls.tables}",)'
            raise ConfigurationError(msg)
        return tuple(_table_name(cls, table) for table in cls.tables)

    @classmethod
    def decoded(cls, event: Event) -> object:
        """The data of *event* as its method takes them; raises DecodeError."""
        return cls.methods.handles[event.type].decode(event.data)

    def project(self, data: object) -> None:
        """Handle `event`, whose *data* are `decoded`; raises what the method raises."""
        name = self.methods.handles[self.event.type].name
        answer = getattr(self, name)(data)
        if inspect.isawaitable(answer) or inspect.isgenerator(answer):
            getattr(
                answer, "close", lambda: None
            )()  # Python warns of a coroutine that is not awaited
            msg = (
                f"{type(self).__qualname__}.{name} returned a {type(answer).__name__}, which has"
                " written nothing yet: do the work in the method itself"
            )
            raise ConfigurationError(msg)

    def reset(self) -> None:
        """Empty the read model, by `connection`; who calls it lets the lanes begin anew."""
        self._truncate_read_models()
        _log.warning("projection_reset: the read model of %s is emptied", self.name)

    def _truncate_read_models(self) -> None:
        """Delete all rows of `tables`; override it where the read model is something else."""
        if not self.tables or self.connection is None:
            lacks = "has no tables" if not self.tables else "has tables and no database"
            msg = (
                f"{type(self).__qualname__} {lacks}, so it cannot be emptied: name its tables in"
                " `tables`, or override _truncate_read_models"
            )
            raise ConfigurationError(msg)
        quote = self.connection.dialect.identifier_preparer.quote
        for name in reversed(self.table_names()):
            self.connection.exec_driver_sql(f"DELETE FROM {quote(name)}")  # noqa: S608 - quoted


def handler_name(projection: str) -> str:
    """The task name of the handler that the projection of this name is."""
    return f"projection.{projection}"


def _check_method(owner: type[Projection], method: Method) -> None:
    if method.merge is not None:
        msg = f"{owner.__qualname__}.{method.name} has a merge strategy, which only commands have"
        raise ConfigurationError(msg)
    function = getattr(owner, method.name)
    kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    if any(is_kind(function) for is_kind in kinds):
        msg = f"{owner.__qualname__}.{method.name} must be written with def, and without yield"
        raise ConfigurationError(msg)


def _table_name(owner: type[Projection], table: Any) -> str:
    name = table if isinstance(table, str) else getattr(table, "name", None)
    if getattr(table, "schema", None) or (isinstance(name, str) and "." in name):
        msg = (
            f"{owner.__qualname__}.tables: {table} names a schema, and a rebuild writes into"
            " another one: name the table alone, and let search_path say where it is"
        )
        raise ConfigurationError(msg)
    if not isinstance(name, str) or not _TABLE.fullmatch(name):
        msg = f"{owner.__qualname__}.tables: {table!r:.100} is neither a table's name nor a Table"
        raise ConfigurationError(msg)
    return name


#: The policy of projections that say nothing.
DEFAULT: Final = "projection"

_OLD: Final = ("MAX_RETRIES", "RETRY_BACKOFF_BASE")
#: Seconds of the longest delay, where the first one is not longer.
_LONGEST: Final = 60


def policy_of(
    kind: type[Projection], said: Policy | str | None = None, *, stacklevel: int = 1
) -> Policy | str:
    """The policy of *kind*: as the decorator *said*, else as the class does.

    Old attributes are warned of, as if *stacklevel* frames above the caller. Raises
    ConfigurationError for what they cannot be.
    """
    chosen = kind.retry_policy if said is None else said
    old = [name for name in _OLD if hasattr(kind, name)]
    if not old:
        return DEFAULT if chosen is None else chosen
    what = f"{kind.__qualname__}.{' and '.join(old)}"
    if chosen is not None:
        msg = f"{what}: not heeded beside retry_policy; remove it"
        warnings.warn(msg, DeprecationWarning, stacklevel=stacklevel + 1)
        return chosen
    policy, spelled = _as_they_say(kind)
    msg = f"{what}: deprecated; write retry_policy = {spelled}"
    warnings.warn(msg, DeprecationWarning, stacklevel=stacklevel + 1)
    return policy


def _as_they_say(kind: type[Projection]) -> tuple[Policy, str]:
    """The policy, and how it is written today: `MAX_RETRIES` counted all runs."""
    runs, base = getattr(kind, "MAX_RETRIES", 3), getattr(kind, "RETRY_BACKOFF_BASE", 2)
    if isinstance(runs, bool) or not isinstance(runs, int) or runs < 1:
        msg = f"{kind.__qualname__}.MAX_RETRIES counts all runs, so it is 1 or more: {runs!r:.50}"
        raise ConfigurationError(msg)
    if isinstance(base, bool) or not isinstance(base, int | float) or not 0 <= base < _A_YEAR:
        msg = f"{kind.__qualname__}.RETRY_BACKOFF_BASE is a number of seconds: {base!r:.50}"
        raise ConfigurationError(msg)
    longest = max(_LONGEST, base)
    policy = ExponentialBackoff(max_retries=runs - 1, first_delay=base, max_delay=longest)
    more = f", max_delay={longest:g}" if longest > _LONGEST else ""
    return policy, f"ExponentialBackoff(max_retries={runs - 1}, first_delay={base:g}{more})"


_A_YEAR: Final = 365 * 86_400
