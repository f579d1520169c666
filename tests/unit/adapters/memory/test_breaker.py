"""Breakers of one process."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

from angzarr.adapters.memory.breaker import InProcessBreakers
from angzarr.resilience.breaker import Breakers, BreakerSettings, Phase

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(seconds=60)


def broken(name: str = "crm") -> InProcessBreakers:
    breakers = InProcessBreakers()
    for n in range(10):
        breakers.record(name, str(n), ok=False, now=NOW)
    return breakers


def test_it_fulfils_the_port() -> None:
    breakers: Breakers = InProcessBreakers()
    assert breakers.admit("crm", "t", NOW) is None


def test_breakers_of_different_names_do_not_know_each_other() -> None:
    breakers = broken("crm")
    refused = breakers.admit("crm", "t", NOW)
    assert refused is not None
    assert refused.retry_after == timedelta(seconds=60)
    assert breakers.admit("mail", "t", NOW) is None


def test_settings_hold_for_their_name_only() -> None:
    breakers = InProcessBreakers({"touchy": BreakerSettings(min_calls=1, failures_in_a_row=1)})
    for name in ("touchy", "crm"):
        breakers.record(name, "t", ok=False, now=NOW)
    assert breakers.state("touchy").phase is Phase.OPEN
    assert breakers.state("crm").phase is Phase.CLOSED


def test_many_threads_get_one_probe() -> None:
    breakers = broken()
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda n: breakers.admit("crm", f"call {n}", LATER), range(200)))
    assert sum(answer is None for answer in answers) == 1


def test_operator_isolates_and_resets() -> None:
    breakers = InProcessBreakers()
    breakers.isolate("crm")
    assert breakers.admit("crm", "t", NOW + timedelta(days=1)) is not None
    breakers.reset("crm")
    assert breakers.admit("crm", "t", NOW) is None


def test_recovered_dependency_is_called_again() -> None:
    breakers = broken()
    for token in ("first", "second"):
        assert breakers.admit("crm", token, LATER) is None
        breakers.record("crm", token, ok=True, now=LATER)
    assert breakers.state("crm").phase is Phase.CLOSED
