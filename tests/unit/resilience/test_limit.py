"""Limits: what may be said of them, and the lines before them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.errors import ConfigurationError
from angzarr.events.event import Event
from angzarr.resilience import limit as rules
from angzarr.resilience.limit import Limit, limits_of
from angzarr.settings.delivery import FlowSettings

NOW = 1_800_000_000.0
EVENT = Event(id="e", type="OrderPlaced", data={}, tenant_id="acme", root="o-1")


@pytest.mark.parametrize(
    ("name", "fields", "said"),
    [
        ("crm", {"rate": 0}, "rate must be more than 0"),
        ("crm", {"rate": 1, "burst": 0.5}, "burst must be 1 or more"),
        ("crm", {"concurrency": 0}, "concurrency must be 1 or more"),
        ("crm", {"rate": 1, "per": "week"}, "per must be one of tenant, event_type"),
        ("a b", {"rate": 1}, "'a b' is not a name of a limit"),
    ],
)
def test_what_cannot_work_is_refused(name, fields, said):
    with pytest.raises(ConfigurationError, match=said):
        Limit(name, **fields)


def test_a_burst_is_a_seconds_calls_and_at_least_one():
    assert Limit("crm", rate=50).tolerance == pytest.approx(49 / 50)
    assert Limit("crm", rate=0.1).tolerance == 0
    assert Limit("crm", concurrency=1).tolerance == 0


@pytest.mark.parametrize(
    ("per", "key"),
    [
        (None, ""),
        ("tenant", "acme"),
        ("event_type", "OrderPlaced"),
        ("handler", "app.h"),
        ("root", "o-1"),
    ],
)
def test_what_a_limit_is_counted_apart_by(per, key):
    assert Limit("crm", rate=1, per=per).key(EVENT, "app.h") == key


@pytest.mark.parametrize("per", ["tenant", "root"])
def test_events_without_a_key_are_counted_together(per):
    bare = replace(EVENT, tenant_id=None, root=None)
    assert Limit("crm", rate=1, per=per).key(bare, "app.h") == ""


def test_settings_win_over_code_field_by_field():
    settings = {"crm": {"rate": 5.0, "per": "tenant"}}
    given = [Limit("crm", rate=50, concurrency=8), Limit("mail", rate=1)]
    assert limits_of(given, settings) == (
        Limit("crm", rate=5.0, concurrency=8, per="tenant"),
        Limit("mail", rate=1),
    )
    assert limits_of("crm", settings) == (Limit("crm", rate=5.0, per="tenant"),)
    assert limits_of(None, settings) == ()


@pytest.mark.parametrize("named", ["crm", Limit("crm"), ["mail", "crm"]])
def test_a_limit_that_is_nowhere_is_refused_with_what_to_write(named):
    with pytest.raises(ConfigurationError, match=r"flow\.limits: \{crm: \{rate: 50\}\}"):
        limits_of(named, {"mail": {"rate": 1}})


@pytest.mark.parametrize("limited", [5, ["crm", 5], {"crm": 5}, 0.5])
def test_what_is_no_limit_is_refused(limited):
    with pytest.raises(ConfigurationError, match="a limit is a Limit or the name of one"):
        limits_of(limited, {"crm": {"rate": 1}})


def test_settings_name_fields_only():
    settings = FlowSettings(limits={"crm": {"rate": 5, "per": "root"}, "mail": {"concurrency": 2}})
    assert settings.named_limits() == {
        "crm": {"rate": 5.0, "per": "root"},
        "mail": {"concurrency": 2},
    }


@pytest.mark.parametrize(
    "limits", [{"crm": {"rate": 0}}, {"a b": {"rate": 1}}, {"crm": {"per": "week"}}]
)
def test_settings_that_cannot_work_are_refused(limits):
    with pytest.raises(ValueError, match=r"rate must|not a name|Input should"):
        FlowSettings(limits=limits)


@given(
    rate=st.floats(0.01, 1000),
    burst=st.floats(1, 100),
    behind=st.floats(0, 1000),
    waiting=st.integers(1, 100),
)
def test_places_in_a_rates_line_are_an_interval_apart(rate, burst, behind, waiting):
    limit = Limit("crm", rate=rate, burst=burst)
    gauge = rules.Gauge(due=NOW + limit.tolerance + behind)
    last = None
    for _ in range(waiting):
        after, wait = rules.wait_for_rate(limit, gauge, NOW)
        least = wait.least.total_seconds()
        assert rules.SHORTEST * 0.99 <= least <= rules.LONGEST
        if after == gauge:  # no place in line
            assert wait.by(1.0).total_seconds() == rules.LONGEST
            break
        assert least >= rules.early(limit, gauge, NOW) - 1e-5
        if last is not None:
            assert least - last == pytest.approx(limit.interval, abs=1e-5)
        gauge, last = after, least


@given(held=st.floats(0, 1e4), concurrency=st.integers(1, 100), waiting=st.integers(1, 100))
def test_no_line_for_a_slot_is_longer_than_a_minute(held, concurrency, waiting):
    limit = Limit("crm", concurrency=concurrency)
    gauge = rules.Gauge(held=held)
    for _ in range(waiting):
        gauge, wait = rules.wait_for_slot(limit, gauge, NOW)
        assert wait.least.total_seconds() >= rules.SHORTEST * 0.99
        assert wait.by(1.0).total_seconds() <= rules.LONGEST_FOR_A_SLOT


@given(held=st.floats(0, 1e4), took=st.floats(0, 1e4))
def test_the_mean_of_how_long_slots_are_held_follows_what_is_seen(held, took):
    gauge = rules.Gauge(held=held)
    for _ in range(60):
        gauge = rules.released(gauge, took)
    assert gauge.held == pytest.approx(took, abs=0.05)
