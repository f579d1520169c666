"""Redaction: a letter without the values that the settings name (spec L3). Pure.

Settings name values by paths such as ``**.password``. Dots divide the steps: a name (in any case)
or the index of a list item, ``*`` for any one step, ``**`` for any number of steps, also none.
Redaction never fails, whatever a letter holds: what cannot be looked into is hidden whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, TypeAlias

from angzarr.dead_letters.letter import DeadLetter
from angzarr.dead_letters.masking import MARK, Words, masked, words_of
from angzarr.dead_letters.metadata import REDACTED, SIGNATURE
from angzarr.events import headers as names
from angzarr.events.event import Event, Message
from angzarr.payloads.sealed_message import is_sealed_body

#: What is left of each pattern after the steps taken so far; `()` where one is complete.
Rests: TypeAlias = frozenset[tuple[str, ...]]

NOTHING: Final[Rests] = frozenset()
#: Names whatever it is asked about.
ALL: Final[Rests] = frozenset({()})

_ANY: Final = "*"
_DEEP: Final = "**"


def parse(pattern: str) -> tuple[str, ...]:
    """The steps of *pattern*; raises ValueError that says what is wrong with it."""
    steps = tuple(pattern.casefold().split("."))
    if not all(steps):
        msg = f"{pattern!r} has an empty step: write a path such as event.card.number"
        raise ValueError(msg)
    if odd := [step for step in steps if "*" in step and step not in (_ANY, _DEEP)]:
        msg = f"{pattern!r} mixes '*' and a name in {odd[0]!r}: '*' and '**' are steps of their own"
        raise ValueError(msg)
    return steps


def start(patterns: Iterable[str]) -> Rests:
    """The rests of *patterns* before the first step."""
    return _spread(parse(pattern) for pattern in patterns)


def after(rests: Rests, name: object) -> Rests:
    """The rests after a step to *name*, a key or an index."""
    if not rests:
        return NOTHING
    step = str(name).casefold()
    return _spread(
        rest if rest[0] == _DEEP else rest[1:]
        for rest in rests
        if rest and rest[0] in (_DEEP, _ANY, step)
    )


def is_named(rests: Rests) -> bool:
    """True if what was reached is named by a pattern."""
    return () in rests


def _spread(rests: Iterable[tuple[str, ...]]) -> Rests:
    """Add what is left where a ``**`` stands for no step."""
    found = set()
    for rest in rests:
        found.add(rest)
        while rest and rest[0] == _DEEP:
            rest = rest[1:]  # noqa: PLW2901 - each of its shorter forms
            found.add(rest)
    return frozenset(found)


#: Levels that are looked into; what lies deeper is hidden where a path may still lead there.
DEEPEST: Final = 100


@dataclass(slots=True)
class Concealment:
    """One letter's: how many values were replaced, and what was in them.

    Every verb returns what it was given, the same object, where nothing in it is named. Nothing
    is hidden where there is nothing: None, an empty text or container, a mark.
    """

    count: int = 0
    removed: list[Any] = field(default_factory=list)

    def value(self, value: Any, paths: Rests, depth: int = 0) -> Any:
        """*value*, to which *paths* are relative."""
        if is_named(paths):
            return self._hidden(value)
        if not paths or not isinstance(value, Mapping | list | tuple):
            return value
        return self._hidden(value) if depth >= DEEPEST else self.children(value, paths, (), depth)

    def named(self, tree: Mapping[str, Any], paths: Rests) -> dict[str, Any]:
        """*tree*, whose own values stay containers: what is in them is hidden instead."""
        return {
            name: self.children(value, ALL if is_named(paths) else after(paths, name))
            for name, value in tree.items()
        }

    def children(
        self, value: Any, paths: Rests, kept: frozenset[str] | tuple[()] = (), depth: int = 0
    ) -> Any:
        """*value* with what is in it concealed, but for the names *kept*."""
        if not paths:
            return value
        every = is_named(paths)
        if isinstance(value, Mapping):
            made = {
                name: one
                if name in kept
                else self.value(one, ALL if every else after(paths, name), depth + 1)
                for name, one in value.items()
            }
            return made if any(made[name] is not one for name, one in value.items()) else value
        if isinstance(value, list | tuple):
            items = [
                self.value(one, ALL if every else after(paths, at), depth + 1)
                for at, one in enumerate(value)
            ]
            same = all(one is two for one, two in zip(items, value, strict=True))
            if same:
                return value
            return tuple(items) if isinstance(value, tuple) else items
        return self.value(value, ALL) if every else value

    def _hidden(self, value: Any) -> Any:
        if value is None or (isinstance(value, str | bytes | Mapping | list | tuple) and not value):
            return value
        if isinstance(value, str) and value == MARK:
            return value
        self.count += 1
        self.removed.extend(_leaves(value))
        return MARK


def _leaves(value: Any) -> Iterator[Any]:
    """Yield what is in *value*, names too, at whatever depth; a container within itself once."""
    waiting, seen = [value], set()
    while waiting:
        one = waiting.pop()
        if not isinstance(one, Mapping | list | tuple):
            yield one
        elif id(one) not in seen:
            seen.add(id(one))
            waiting.extend(one)
            if isinstance(one, Mapping):
                waiting.extend(one.values())


#: Headers by which a letter's event and handler are known; no pattern hides them.
KEPT_HEADERS: Final = frozenset(
    {"task", "id"}
    | {value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)}
) - {names.UNREAD}
#: Headers in which Celery repeats the payload for people.
REPRS: Final = ("argsrepr", "kwargsrepr")
#: Fields that travel as metadata and are free text.
_TEXT_FACTS: Final = ("error_message", "error_stack", "error_code", "worker", "version")
#: Fields in which a removed value may be repeated.
_REPEATING: Final = ("explanation", "error_message", "error_stack", "error_code")
#: Roots of a path by which the payload can be reached.
_PAYLOAD_ROOTS: Final = ("event", "args", "kwargs", "embed")
_HIDDEN_BODY: Final = json.dumps(MARK).encode()


class _Parsed(NamedTuple):
    """A body read as JSON."""

    value: Any
    #: Whether an object said one name twice, so that a value is there that no reader sees.
    shadowed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Redaction:
    """The hidden parts: values by path, and free text that looks like *texts*."""

    paths: Rests = NOTHING
    texts: Sequence[re.Pattern[str]] = ()

    @classmethod
    def of(cls, paths: Sequence[str], texts: Sequence[re.Pattern[str]]) -> Redaction:
        """The redaction that the settings describe."""
        return cls(paths=start(paths), texts=tuple(texts))

    def __call__(self, letter: DeadLetter) -> DeadLetter:
        """*letter* without what it must not show; doing it twice changes nothing.

        Its metadata count what was removed of the message. A letter that others wrote is
        returned as it is.
        """
        if letter.envelope:
            return letter
        found = Concealment()
        message, event = self._message(letter, found)
        hidden = found.count
        shown = replace(self._texts(letter, found), message=message, event=event)
        if not hidden:
            return shown
        count = hidden + _number(letter.metadata.get(REDACTED, ""))
        return replace(shown, metadata={**shown.metadata, REDACTED: str(count)})

    def of_texts(self, letter: DeadLetter) -> DeadLetter:
        """*letter* with its texts redacted and its message as it is: for facts and logs."""
        if letter.envelope:
            return letter
        found = Concealment()
        self._message(letter, found)
        return self._texts(letter, found)

    # -- what a replay would send ------------------------------------------------------------

    def _message(self, letter: DeadLetter, found: Concealment) -> tuple[Message, Event | None]:
        message, event = letter.message, letter.event
        body = self._body(message, found)
        if event is not None and not is_sealed_body(message.body):
            event = _with_data(event, self._data(event.data, message, found))
        headers = self._headers(message.headers, found)
        if body is not message.body or event is not letter.event:
            headers = without_reprs(headers)
        properties = found.children(message.properties, after(self.paths, "properties"))
        return replace(message, body=body, headers=headers, properties=properties), event

    def _headers(self, headers: Mapping[str, Any], found: Concealment) -> Mapping[str, Any]:
        """*headers*; those that could not be read (RabbitMQ) are hidden as one."""
        paths = after(self.paths, "headers")
        hidden: Mapping[str, Any] = found.children(headers, paths, KEPT_HEADERS)
        if paths and names.UNREAD in hidden:
            unread = found.value(hidden[names.UNREAD], ALL)
            hidden = {**hidden, names.UNREAD: unread}
        return hidden

    def _body(self, message: Message, found: Concealment) -> bytes:
        """The body as it is where nothing in it is named, to the byte."""
        body = message.body
        if not self._reaches_payload or body in (b"", _HIDDEN_BODY) or is_sealed_body(body):
            return body
        try:
            parsed = _parse(message)
            value = self._of_body(parsed.value, found)
            if value is parsed.value and not parsed.shadowed:
                return body
            return json.dumps(value).encode()
        except (ValueError, RecursionError):
            found.count += 1
            return _HIDDEN_BODY

    def _of_body(self, value: Any, found: Concealment) -> Any:
        """The JSON *value* of a body of protocol 2, of protocol 1 or of another writer."""
        match value:
            case [list() as args, dict() as kwargs, embed]:
                parts = [*self._arguments(args, kwargs, found)]
                (rest,) = found.named({"embed": embed}, self.paths).values()
                unchanged = parts[0] is args and parts[1] is kwargs and rest is embed
                return value if unchanged else [*parts, rest]
            case {"args": list() as args, "kwargs": dict() as kwargs}:
                parts = [*self._arguments(args, kwargs, found)]
                if parts[0] is not args or parts[1] is not kwargs:
                    value = {**value, "args": parts[0], "kwargs": parts[1]}
        return found.value(value, self.paths | after(self.paths, "event"))

    def _arguments(self, args: Any, kwargs: Any, found: Concealment) -> tuple[Any, Any]:
        """The arguments of a task, of which a single one is the event itself."""
        tree = found.named({"args": args, "kwargs": kwargs}, self.paths)
        args, kwargs = tree["args"], tree["kwargs"]
        of_event = after(self.paths, "event")
        if len(args) == 1 and not kwargs:
            event = found.value(args[0], of_event)
            return (args if event is args[0] else [event]), kwargs
        tree = found.named({"args": args, "kwargs": kwargs}, of_event)
        return tree["args"], tree["kwargs"]

    def _data(self, data: Any, message: Message, found: Concealment) -> Any:
        """The view that *data* is of the body; what is removed here is counted there."""
        if not self._reaches_payload:
            return data
        counted, single = found.count, _has_one_argument(message)
        if _is_of_arguments(data) and single is not True:
            args, kwargs = self._arguments(data["args"], data["kwargs"], found)
            if args is not data["args"] or kwargs is not data["kwargs"]:
                data = {"args": args, "kwargs": kwargs}
        if single is not False:
            ((data,), _) = self._arguments([data], {}, found)
        found.count = counted
        return data

    @property
    def _reaches_payload(self) -> bool:
        return any(after(self.paths, root) for root in _PAYLOAD_ROOTS)

    # -- what people read --------------------------------------------------------------------

    def _texts(self, letter: DeadLetter, found: Concealment) -> DeadLetter:
        told = {name: getattr(letter, name) for name in _TEXT_FACTS}
        own = {key: letter.metadata[key] for key in (REDACTED, SIGNATURE) if key in letter.metadata}
        others = {key: value for key, value in letter.metadata.items() if key not in own}
        named = after(self.paths, "metadata")
        told, others = (dict(found.children(part, named)) for part in (told, others))
        hide = _hider(words_of(found.removed), self.texts)
        texts = {"explanation": letter.explanation, **told}
        texts |= {name: hide(texts[name]) for name in _REPEATING}
        others = {key: hide(value) for key, value in others.items()}
        return replace(letter, metadata=others | own, **texts)


def without_reprs(headers: Mapping[str, Any], mark: str = MARK) -> Mapping[str, Any]:
    """*headers* without Celery's texts of the arguments, which may be cut in a value."""
    return {**headers, **{name: mark for name in REPRS if name in headers}}


def hides(letter: DeadLetter) -> bool:
    """True if something was removed of what a replay of *letter* would send."""
    return REDACTED in letter.metadata


def _hider(words: Words | None, texts: Sequence[re.Pattern[str]]) -> Callable[[str], str]:
    return lambda text: masked(text, words, texts)


def _with_data(event: Event, data: Any) -> Event:
    return event if data is event.data else replace(event, data=data)


def _is_of_arguments(data: Any) -> bool:
    """True if *data* may be all arguments of a plain task (`delivery.data_of`)."""
    return (
        isinstance(data, Mapping)
        and data.keys() == {"args", "kwargs"}
        and isinstance(data["args"], list)
        and isinstance(data["kwargs"], Mapping)
    )


def _has_one_argument(message: Message) -> bool | None:
    """True if the task has a single argument, its event; None where that is not known."""
    try:
        value = _parse(message).value
    except (ValueError, RecursionError):
        return None
    match value:
        case [list() as args, dict() as kwargs, _]:
            return len(args) == 1 and not kwargs
        case {"args": list() as args, "kwargs": dict() as kwargs}:
            return len(args) == 1 and not kwargs
    return None


def _parse(message: Message) -> _Parsed:
    """Read the body; raises ValueError or RecursionError where it is not JSON."""
    if "json" not in message.content_type.lower():
        msg = "the body does not say that it is JSON"
        raise ValueError(msg)
    shadowed = []

    def made(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            shadowed.append(True)
        return made

    return _Parsed(json.loads(message.body, object_pairs_hook=made), bool(shadowed))


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < len(str(2**31)) else 0
