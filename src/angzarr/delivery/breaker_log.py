"""Facts and log lines of what breakers and switches do (spec D5, O4)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from angzarr.facts.act import ActKind, act_origin, end_of_act
from angzarr.facts.fact import Fact, FactLog
from angzarr.resilience.breaker import BreakerRefusal, Phase, Transition
from angzarr.resilience.switches import Selector, Switch, SwitchChange

_log = logging.getLogger("angzarr.flow")

_WORDS = {
    Phase.OPEN: "circuit_breaker_opened",
    Phase.HALF_OPEN: "circuit_breaker_half_open",
    Phase.CLOSED: "circuit_breaker_closed",
    Phase.ISOLATED: "circuit_breaker_isolated",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerLog:
    """Fulfils `BreakerWatch`. *facts* is asked for its log when there is something to say."""

    facts: Callable[[], FactLog]

    def changed(self, transition: Transition, /) -> None:
        """Append the fact of a transition and log it."""
        level = logging.INFO if transition.after is Phase.CLOSED else logging.WARNING
        _log.log(
            level, "%s: %s, %s to %s, %s; of %d calls %d failed",
            _WORDS[transition.after], transition.name, transition.before, transition.after,
            transition.reason, transition.counts.requests, transition.counts.failures,
        )  # fmt: skip
        self._append(transition_fact(transition))

    def refused(self, refusal: BreakerRefusal, /) -> None:
        """Append the fact that calls are refused."""
        self._append(refusal_fact(refusal))

    def _append(self, fact: Fact) -> None:
        try:
            self.facts().append([fact])
        except Exception:  # noqa: BLE001 - no fact is worth a delivery
            _log.exception("fact_not_appended")


def transition_fact(transition: Transition) -> Fact:
    """The fact of *transition*; its id is the same in every process that reports it."""
    return Fact(
        id=f"breaker:{transition.name}:{transition.era}:{transition.at.isoformat()}",
        type="lifecycle",
        subtype="circuit_breaker_state_changed",
        at=transition.at,
        resolves=end_of_act(ActKind.BREAKER_CHANGED),
        data={
            "circuit_name": transition.name,
            "previous_state": transition.before.value,
            "new_state": transition.after.value,
            "reason": transition.reason.value,
            "failure_count": transition.counts.failures,
            "success_count": transition.counts.successes,
            "request_count": transition.counts.requests,
            "by": transition.by or None,
            "origin": act_origin().value,
        },
    )


def refusal_fact(refusal: BreakerRefusal) -> Fact:
    """The fact that a breaker refuses calls."""
    return Fact(
        id=f"breaker:{refusal.name}:refused:{refusal.at.isoformat()}",
        type="error",
        subtype="external",
        at=refusal.at,
        data={
            "error_code": "CIRCUIT_OPEN",
            "error_type": "circuit_breaker",
            "circuit_name": refusal.name,
            "circuit_state": refusal.phase.value,
            "error_message": f"breaker {refusal.name!r} refuses calls",
            "retry_after_ms": round(refusal.retry_after.total_seconds() * 1000),
            "resolved": False,
        },
    )


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
    """The fact of *change*."""
    selector = change.selector or Selector()
    return Fact(
        id=f"switch:{change.switch_id}:{change.id}",
        type="lifecycle",
        subtype="flow_switched",
        at=change.at,
        resolves=end_of_act(ActKind.FLOW_SWITCHED),
        tenant_id=selector.tenant,
        tool_id=None if selector.is_pattern else selector.handler,
        data={
            "action": change.word,
            "switch_id": change.switch_id,
            **selector._asdict(),
            "by": change.by,
            "origin": act_origin().value,
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
