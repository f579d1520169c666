"""SwitchLog: what is done with switches, as facts and log lines."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from angzarr.facts import Fact, FactLog
from angzarr.resilience.switches import Selector, Switch, SwitchChange

_log = logging.getLogger("angzarr.flow")


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchLog:
    """Fulfils `SwitchWatch`. *facts* is asked for its log when there is something to say."""

    facts: Callable[[], FactLog]

    def changed(self, change: SwitchChange, /) -> None:
        """Append the fact of a change."""
        try:
            self.facts().append([change_fact(change)])
        except Exception:  # noqa: BLE001 - it is done, and stands in the history
            _log.exception("fact_not_appended")

    def heard(self, before: Mapping[str, Switch], after: Mapping[str, Switch], /) -> None:
        """Log what begins and ends to hold in this process."""
        for id_, switch in after.items():
            if before.get(id_) != switch:
                _log.warning("flow_switched: from now on deliveries are %s", switch)
        for id_, switch in before.items():
            if id_ not in after:
                _log.warning("flow_resumed: no longer are deliveries %s", switch)


def change_fact(change: SwitchChange) -> Fact:
    """Return the fact of *change*."""
    selector = change.selector or Selector()
    return Fact(
        id=f"switch:{change.switch_id}:{change.id}",
        type="lifecycle",
        subtype="flow_switched",
        at=change.at,
        tenant_id=selector.tenant,
        tool_id=None if selector.is_pattern else selector.handler,
        data={
            "action": change.word,
            "switch_id": change.switch_id,
            **selector._asdict(),
            "by": change.by,
            "reason": change.reason or None,
            "until": _until(change.after),
            "previous": change.before and _brief(change.before),
        },
    )


def _brief(switch: Switch) -> dict[str, Any]:
    return {
        "action": switch.action.value,
        "by": switch.by,
        "reason": switch.reason or None,
        "at": switch.at.isoformat(),
        "until": _until(switch),
    }


def _until(switch: Switch | None) -> str | None:
    return None if switch is None or switch.until is None else switch.until.isoformat()
