"""Switches of one process: what holds for an app whose fleet shares no flow store."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import datetime, timedelta
from threading import Lock

from angzarr.clock import Clock, SystemClock
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


class InProcessSwitches:
    """Fulfils `Switches` and `SwitchControls`, safe to use from many threads."""

    def __init__(
        self,
        watch: SwitchWatch | None = None,
        clock: Clock | None = None,
        *,
        most: int = MOST,
    ) -> None:
        self._watch = watch
        self._most = most
        self._clock = clock or SystemClock()
        self._all = SwitchSet()
        self._history: deque[SwitchChange] = deque(maxlen=REMEMBERED)
        self._changes = 0
        self._lock = Lock()

    def any(self) -> bool:
        """True if there are any."""
        return bool(self._all)

    def of(self, subject: Selector, /) -> Switch | None:
        """The switch that holds for *subject* now."""
        return self._all.of(subject, self.now()) if self._all else None

    def now(self) -> datetime:
        """This process's time."""
        return self._clock.now()

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
        """Pause or drop what *selector* means."""
        check_switch(selector, action, by, reason, until)
        now = self.now()
        ends = now + until if isinstance(until, timedelta) else until
        switch = Switch(
            selector=selector, action=action, by=by, reason=reason, at=now, until=ends
        )  # fmt: skip
        with self._lock:
            kept = self._kept(now)
            if len(kept) >= self._most and switch.id not in kept:
                raise too_many(self._most)
            change = self._change(selector, kept.get(switch.id), switch, by, reason)
            before = self._all
            self._all = SwitchSet((kept | {switch.id: switch}).values())
        self._tell(before, [change])
        return switch

    def resume(self, ids: Sequence[str], /, *, by: str, reason: str = "") -> Sequence[Switch]:
        """End the switches of *ids*; return those that there were."""
        check_person(by, reason)
        with self._lock:
            kept = self._kept(self.now())
            ended = [kept.pop(one) for one in dict.fromkeys(ids) if one in kept]
            changes = [self._change(one.selector, one, None, by, reason) for one in ended]
            before, self._all = self._all, SwitchSet(kept.values())
        self._tell(before, changes)
        return ended

    def switches(self) -> Sequence[Switch]:
        """All that hold, the oldest first."""
        return sorted(self._kept(self.now()).values(), key=lambda switch: (switch.at, switch.id))

    def unreadable(self) -> Sequence[str]:
        """None: no other process writes here."""
        return ()

    def history(self, limit: int) -> Sequence[SwitchChange]:
        """The last *limit* changes, oldest first."""
        return list(self._history)[-limit:]

    def _kept(self, now: datetime) -> dict[str, Switch]:
        return {one: switch for one, switch in self._all.by_id.items() if not switch.is_over(now)}

    def _change(
        self,
        selector: Selector,
        before: Switch | None,
        after: Switch | None,
        by: str,
        reason: str,
    ) -> SwitchChange:
        self._changes += 1
        change = SwitchChange(
            id=str(self._changes), switch_id=selector.id, selector=selector,
            before=before, after=after, by=by, reason=reason, at=self.now(),
        )  # fmt: skip
        self._history.append(change)
        return change

    def _tell(self, before: SwitchSet, changes: Sequence[SwitchChange]) -> None:
        if self._watch is not None:
            for change in changes:
                self._watch.changed(change)
            self._watch.heard(before.by_id, self._all.by_id)
