"""Switches on Redis, the same for a whole fleet; asked in memory, told by push (spec D5).

Each process keeps all that it last heard, however long Redis is away. It asks once before its
first delivery, and after that only when something changed.

How a switch lies in Redis: what switches.lua is told, and what anybody may have written there.

What a newer release wrote is never taken for less than it says: of a switch that says more of
what it does than is known here a pause is honoured, one that says more of whom it means is not
read at all.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from threading import Lock
from typing import Any, Final, NamedTuple

from angzarr.adapters.redis.flow_line import FlowLine, flow_key, moment
from angzarr.adapters.redis.link import Argument, Script
from angzarr.resilience.switches import (
    MOST,
    REMEMBERED,
    Selector,
    Switch,
    SwitchAction,
    SwitchChange,
    SwitchSet,
    SwitchWatch,
    check_person,
    check_switch,
    too_many,
)
from angzarr.runtime.failures import LogThrottle

_MS: Final = timedelta(milliseconds=1)
_SAID: Final = frozenset({"selector", "action", "by", "reason"})
_ACTIONS: Final = [action.value for action in SwitchAction]
#: What reading anything else than a switch may raise.
_ODD: Final = (
    ValueError, TypeError, KeyError, AttributeError, OverflowError, OSError, RecursionError,
)  # fmt: skip


def told_switch(selector: Selector, action: SwitchAction, by: str, reason: str) -> str:
    """What a switch says as the script keeps it, in ASCII."""
    said = {"selector": selector.named, "action": action, "by": by, "reason": reason}
    return json.dumps(said)


def told_person(by: str, reason: str) -> str:
    """Who resumes, and why, as the script keeps it, in ASCII."""
    return json.dumps({"by": by, "reason": reason})


def told_end(until: datetime | timedelta | None) -> str:
    """When a switch ends as the script reads it."""
    if isinstance(until, timedelta):
        return f"+{until // _MS}"
    return "0" if until is None else f"{until.timestamp() * 1000:.0f}"


def read_switch(id_: str, told: str) -> Switch | None:
    """The switch that stands under *id_*, None if its scope cannot be read."""
    try:
        at, ends, text = told.split(" ", 2)
        said: dict[str, Any] = json.loads(text)
        selector = _selector(said["selector"])
        known = said.get("action") in _ACTIONS and said.keys() <= _SAID
        switch = Switch(
            selector=selector,
            action=SwitchAction(said["action"]) if known else SwitchAction.PAUSE,
            by=_text(said["by"]),
            reason=_text(said["reason"]),
            at=moment(int(at)),
            until=None if ends == "0" else moment(int(ends)),
            understood=known,
        )
    except _ODD:
        return None
    return switch if switch.id == id_ else None


def read_changes(entries: Iterable[tuple[str, Mapping[str, str]]]) -> list[SwitchChange]:
    """The changes among *entries* of the history, each its id there and what it says."""
    found = [read_change(entry, told) for entry, told in entries]
    return [change for change in found if change is not None]


def read_change(entry: str, told: Mapping[str, str]) -> SwitchChange | None:
    """A change as the script wrote it into the history, None if it is none.

    *entry* is its id there.
    """
    try:
        id_, said = told["switch"], json.loads(told["said"])
        before = read_switch(id_, told["before"])
        after = read_switch(id_, told["after"])
        if told["after"] and after is None:
            return None
        subject = after or before
        return SwitchChange(
            id=entry,
            switch_id=id_,
            selector=subject.selector if subject else None,
            before=before,
            after=after,
            by=_text(said["by"]),
            reason=_text(said["reason"]),
            at=moment(int(entry.partition("-")[0])),
        )
    except _ODD:
        return None


def _selector(named: Mapping[str, Any]) -> Selector:
    said = {part: name for part, name in named.items() if name is not None}
    return Selector(**{part: _text(name) for part, name in said.items()})


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


_log = logging.getLogger("angzarr.flow")

_STEP: Final = Script("switches.lua")
_NONE: Final = SwitchSet()
#: Entries that one log line names at most.
_NAMED: Final = 10


class _Reply(NamedTuple):
    full: bool
    changes: Sequence[SwitchChange]
    switches: Sequence[Switch]
    #: Ids of the entries that cannot be read.
    unreadable: Sequence[str]


class RedisSwitches:
    """Fulfils `Switches` and `SwitchControls`, safe to use from many threads.

    *watch* is told what this process changed, and what it honours; *line* is shared with others
    who use it.
    """

    def __init__(
        self, line: FlowLine, watch: SwitchWatch | None = None, *, most: int = MOST
    ) -> None:
        self._line = line
        self._watch = watch
        self._most = most
        self._keys = (
            flow_key(line.prefix, "switches"),
            line.version_key,
            flow_key(line.prefix, "switches", "history"),
        )
        #: What this process honours; None: it has not heard of any yet.
        self._all: SwitchSet | None = None
        #: Whether it was asked for them; what that did not bring the line's look will bring.
        self._asked = False
        self._seldom = LogThrottle()
        #: Held while Redis is asked, so that no answer is overtaken by an older one.
        self._asking = Lock()
        line.on_change("switch", lambda _id: self._look())

    def any(self) -> bool:
        """True if there are any; Redis is asked the first time, once."""
        if self._all is None and not self._asked:
            self._line.start()
            self._line.ask(self._look_first, None)
        return bool(self._all)

    def of(self, subject: Selector, /) -> Switch | None:
        """The switch that holds for *subject* now, as far as this process has heard."""
        if self._all is None:
            self._line.start()
        return self._all.of(subject, self._line.now()) if self._all else None

    def now(self) -> datetime:
        """Redis's time as it is known here."""
        return self._line.now()

    def put(
        self,
        selector: Selector,
        action: SwitchAction,
        /,
        *,
        by: str,
        reason: str = "",
        until: datetime | timedelta | None = None,
    ) -> Switch:
        """Pause or drop what *selector* means; raises StoreUnavailable or ConfigurationError."""
        check_switch(selector, action, by, reason, until)
        said = told_switch(selector, action, by, reason)
        reply = self._change("put", selector.id, told_end(until), said)
        if reply.full:
            raise too_many(self._most)
        put = reply.changes[0].after
        assert put is not None  # noqa: S101 - it has just been put
        return put

    def resume(self, ids: Sequence[str], /, *, by: str, reason: str = "") -> Sequence[Switch]:
        """End the switches of *ids*; raises StoreUnavailable or ConfigurationError."""
        check_person(by, reason)
        changes = self._change("resume", told_person(by, reason), *ids).changes
        return [change.before for change in changes if change.before is not None]

    def switches(self) -> Sequence[Switch]:
        """All that hold, the oldest first; raises StoreUnavailable."""
        found, now = self._step("look").switches, self.now()
        return sorted(
            (switch for switch in found if not switch.is_over(now)),
            key=lambda switch: (switch.at, switch.id),
        )

    def unreadable(self) -> Sequence[str]:
        """The ids of what lies there and cannot be read; raises StoreUnavailable."""
        return self._step("look").unreadable

    def history(self, limit: int) -> Sequence[SwitchChange]:
        """The last *limit* changes, oldest first; raises StoreUnavailable."""
        return read_changes(self._line.last(self._keys[2], limit))

    def _look_first(self) -> None:
        with self._asking:
            if not self._asked and not self._line.away:  # as who came first may have found
                self._asked = True
                self._take_in(self._step("look"))

    def _look(self) -> None:
        with self._asking:
            self._take_in(self._step("look"))

    def _change(self, step: str, *what: Argument) -> _Reply:
        with self._asking:
            reply = self._step(step, uuid.uuid4().hex, *what)
            if self._all is not None:  # else it is somebody at a keyboard, who honours nothing
                self._take_in(reply)
        if self._watch is not None:
            for change in reply.changes:
                self._watch.changed(change)
        return reply

    def _take_in(self, reply: _Reply) -> None:
        if reply.unreadable and self._seldom.now():
            named = ", ".join(reply.unreadable[:_NAMED])
            _log.warning(
                "flow_switches_unreadable: %d hold nothing here, see `angzarr flow list`: %s",
                len(reply.unreadable), named,
            )  # fmt: skip
        before, self._all = self._all or _NONE, SwitchSet(reply.switches)
        if self._watch is not None:
            self._watch.heard(before.by_id, self._all.by_id)

    def _step(self, *step: Argument) -> _Reply:
        now, full, changes, switches = self._line.client.run(
            _STEP, self._keys, self._line.channel, self._most, REMEMBERED, *step
        )
        self._line.told_time(now)
        read = [(id_, read_switch(id_, told)) for id_, told in switches]
        return _Reply(
            bool(full),
            read_changes(
                (entry, {"switch": id_, "before": before, "after": after, "said": said})
                for entry, id_, before, after, said in changes
            ),
            [switch for _, switch in read if switch is not None],
            [id_ for id_, switch in read if switch is None],
        )
