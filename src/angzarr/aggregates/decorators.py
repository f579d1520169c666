"""Decorators: a class says by them what its methods are for (spec C2, C4)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from angzarr.aggregates.command import MergeStrategy
from angzarr.errors import ConfigurationError
from angzarr.events.event import check_domain, decoder_for, event_type_of

F = TypeVar("F", bound=Callable[..., Any])

_MARKS: Final = "__angzarr__"


class Subject(NamedTuple):
    """What a method takes: the name of a type, and what decodes its data."""

    type: str
    decode: Callable[[Any], Any]


class Rejected(NamedTuple):
    """The rejected commands that a method answers."""

    domain: str
    type: str


@dataclass(slots=True)
class Marks:
    """What the decorators said of one method."""

    handles: list[Subject] = field(default_factory=list)
    applies: list[Subject] = field(default_factory=list)
    reacts_to: list[Subject] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    merge: MergeStrategy | None = None


def handles(command: object) -> Callable[[F], F]:
    """Let a method decide commands of a type: it returns events, or raises CommandRejectedError.

    A method of a projection takes events of a type. *command* is a pydantic model, a dataclass, a
    protobuf message or a type name.
    """
    return _marking(lambda marks: marks.handles.append(_subject(command)))


def applies(event: object) -> Callable[[F], F]:
    """Let a method change the state by an event of a type; what it returns is the new state.

    It changes `self.state` in place where it returns nothing. It must not refuse: the event
    happened.
    """
    return _marking(lambda marks: marks.applies.append(_subject(event)))


def reacts_to(event: object) -> Callable[[F], F]:
    """Let a method of a saga or a process manager answer events of a type with commands."""
    return _marking(lambda marks: marks.reacts_to.append(_subject(event)))


def rejected(domain: str, command: object) -> Callable[[F], F]:
    """Let a method answer the rejection of *command* by the aggregates of *domain*."""
    wanted = Rejected(check_domain(domain), event_type_of(command))
    return _marking(lambda marks: marks.rejected.append(wanted))


def merge_strategy(strategy: MergeStrategy) -> Callable[[F], F]:
    """Say what becomes of commands to a method whose expected sequence is stale (spec C2)."""

    def say(marks: Marks) -> None:
        marks.merge = MergeStrategy(strategy)

    return _marking(say)


def _marking(say: Callable[[Marks], None]) -> Callable[[F], F]:
    def mark(method: F) -> F:
        _check_method(method)
        if not hasattr(method, _MARKS):
            setattr(method, _MARKS, Marks())
        say(getattr(method, _MARKS))
        return method

    return mark


def _check_method(method: Any) -> None:
    if not inspect.isfunction(method):
        msg = f"{method!r} is not a method written with def: decorate the method itself"
        raise ConfigurationError(msg)
    if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
        msg = (
            f"{method.__qualname__} decides on its state alone and waits for nothing: write it as"
            " def, not async def"
        )
        raise ConfigurationError(msg)


def _subject(declared: object) -> Subject:
    return Subject(event_type_of(declared), decoder_for(declared))


class Method(NamedTuple):
    """A method that takes a type."""

    name: str
    decode: Callable[[Any], Any]
    merge: MergeStrategy | None = None


@dataclass(frozen=True, slots=True)
class Methods:
    """The methods of a class, by what they take."""

    handles: dict[str, Method] = field(default_factory=dict)
    applies: dict[str, Method] = field(default_factory=dict)
    reacts_to: dict[str, Method] = field(default_factory=dict)
    rejected: dict[Rejected, str] = field(default_factory=dict)


def methods_of(owner: type) -> Methods:
    """What the methods of *owner* and its bases declare.

    A method that overrides one and says nothing takes what that one takes. Raises
    ConfigurationError where two methods take one type.
    """
    found = Methods()
    for name, _ in inspect.getmembers(owner, inspect.isfunction):
        marks = _marks_of(owner, name)
        if marks is not None:
            _add(found, owner, name, marks)
    return found


def _marks_of(owner: type, name: str) -> Marks | None:
    said = (getattr(vars(one).get(name), _MARKS, None) for one in owner.__mro__)
    return next((marks for marks in said if marks is not None), None)


def _add(found: Methods, owner: type, name: str, marks: Marks) -> None:
    if marks.merge is not None and not marks.handles:
        msg = f"{owner.__qualname__}.{name} has a merge strategy and handles no command"
        raise ConfigurationError(msg)
    for kind in ("handles", "applies", "reacts_to"):
        for subject in getattr(marks, kind):
            _take(owner, getattr(found, kind), subject.type, kind,
                  Method(name, subject.decode, marks.merge))  # fmt: skip
    for wanted in marks.rejected:
        _take(owner, found.rejected, wanted, "answers rejections of", name)


def _take(owner: type, taken: dict[Any, Any], key: Any, verb: str, method: Any) -> None:
    if key in taken:
        what = key if isinstance(key, str) else f"{key.type} by {key.domain}"
        msg = f"{owner.__qualname__} {verb.replace('_', ' ')} {what} twice: keep one of the methods"
        raise ConfigurationError(msg)
    taken[key] = method
