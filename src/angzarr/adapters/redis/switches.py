"""Switches on Redis, the same for a whole fleet; asked in memory, told by push (spec D5).

Each process keeps all that it last heard, however long Redis is away. It asks once before its
first delivery, and after that only when something changed.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Any, Final, NamedTuple

from angzarr.adapters.redis.flow_line import FlowLine, flow_key
from angzarr.adapters.redis.link import Argument, Script
from angzarr.resilience.switch_rules import SwitchSet, check_switch, too_many
from angzarr.resilience.switches import (
    MOST,
    REMEMBERED,
    Action,
    Selector,
    Switch,
    SwitchChange,
    SwitchWatch,
)

_STEP: Final = Script("switches.lua")
_MS: Final = timedelta(milliseconds=1)
_NONE: Final = SwitchSet()


class _Reply(NamedTuple):
    full: bool
    changes: Sequence[SwitchChange]
    switches: Sequence[Switch]


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
        #: Held while Redis is asked, so that no answer is overtaken by an older one.
        self._asking = Lock()
        line.on_change("switch", lambda _id: self._look())

    def any(self) -> bool:
        """Tell whether there are any; Redis is asked the first time."""
        if self._all is None:
            self._line.start()
            self._line.ask(self._look_first, None)
        return bool(self._all)

    def of(self, subject: Selector, /) -> Switch | None:
        """Return the switch that holds for *subject* now, as far as this process has heard."""
        if self._all is None:
            self._line.start()
        return self._all.of(subject, self._line.now()) if self._all else None

    def now(self) -> datetime:
        """Return Redis's time as it is known here."""
        return self._line.now()

    def put(
        self,
        selector: Selector,
        action: Action,
        /,
        *,
        by: str,
        reason: str = "",
        until: datetime | timedelta | None = None,
    ) -> Switch:
        """Pause or drop what *selector* means; raises StoreUnavailable or ConfigurationError."""
        check_switch(selector, action, by, reason)
        said = {"selector": selector, "action": action, "by": by, "reason": reason}
        reply = self._change("put", selector.id, _told(until), json.dumps(said))
        if reply.full:
            raise too_many(self._most)
        put = reply.changes[0].after
        assert put is not None  # noqa: S101 - it has just been put
        return put

    def resume(self, ids: Sequence[str], /, *, by: str, reason: str = "") -> Sequence[Switch]:
        """End the switches of *ids*; raises StoreUnavailable."""
        said = json.dumps({"by": by, "reason": reason})
        changes = self._change("resume", said, *ids).changes
        return [change.before for change in changes if change.before is not None]

    def switches(self) -> Sequence[Switch]:
        """Return all that hold, the oldest first; raises StoreUnavailable."""
        found, now = self._step("look").switches, self.now()
        return sorted(
            (switch for switch in found if not switch.is_over(now)),
            key=lambda switch: (switch.at, switch.id),
        )

    def history(self, limit: int) -> Sequence[SwitchChange]:
        """Return the last *limit* changes, oldest first; raises StoreUnavailable."""
        entries = self._line.client.execute("XREVRANGE", self._keys[2], "+", "-", "COUNT", limit)
        found = ((entry, dict(zip(said[::2], said[1::2], strict=True))) for entry, said in entries)
        return [_change(entry, said) for entry, said in found][::-1]

    def _look_first(self) -> None:
        with self._asking:
            if self._all is None and not self._line.away:  # as who came first may have found
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
        before, self._all = self._all or _NONE, SwitchSet(reply.switches)
        if self._watch is not None:
            self._watch.heard(before.by_id, self._all.by_id)

    def _step(self, *step: Argument) -> _Reply:
        now, full, changes, switches = self._line.client.run_keys(
            _STEP, self._keys, self._line.channel, self._most, REMEMBERED, *step
        )
        self._line.told_time(now)
        return _Reply(
            bool(full),
            [
                _change(entry, {"before": before, "after": after, "said": said})
                for entry, before, after, said in changes
            ],
            [_switch(one) for one in switches],
        )


def _told(until: datetime | timedelta | None) -> str:
    """Return when a switch ends as the script reads it."""
    if isinstance(until, timedelta):
        return f"+{until // _MS}"
    return "0" if until is None else f"{until.timestamp() * 1000:.0f}"


def _switch(told: str) -> Switch:
    """Return a switch as the script wrote it."""
    at, ends, said = told.split(" ", 2)
    given: dict[str, Any] = json.loads(said)
    return Switch(
        selector=Selector(*given["selector"]),
        action=Action(given["action"]),
        by=given["by"],
        reason=given["reason"],
        at=_time(at),
        until=None if ends == "0" else _time(ends),
    )


def _change(entry: str, told: Mapping[str, str]) -> SwitchChange:
    """Return a change as the script wrote it into the history, where *entry* is its id."""
    before = _switch(told["before"]) if told["before"] else None
    after = _switch(told["after"]) if told["after"] else None
    said = json.loads(told["said"])
    subject = after or before
    assert subject is not None  # noqa: S101 - the script writes no entry without either
    return SwitchChange(
        id=entry,
        selector=subject.selector,
        before=before,
        after=after,
        by=said["by"],
        reason=said["reason"],
        at=_time(entry.partition("-")[0]),
    )


def _time(milliseconds: str) -> datetime:
    return datetime.fromtimestamp(int(milliseconds) / 1000, UTC)
