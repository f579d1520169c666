"""The named policies of D3, policies from settings, and which one a delivery gets."""

from __future__ import annotations

from datetime import timedelta

import pytest

from angzarr.errors import ConfigurationError
from angzarr.resilience.backoff import Jitter, Policy
from angzarr.resilience.category import Category
from angzarr.resilience.policies import POLICIES, named, policies_from


@pytest.mark.parametrize(
    ("name", "base", "most", "attempts"),
    [
        ("fact_append", 1, 60, 3),
        ("entity_create", 1, 60, 3),
        ("config_update", 1, 30, 3),
        ("external_api", 2, 120, 5),
        ("webhook", 5, 300, 5),
        ("crm_sync", 10, 600, 10),
        ("realtime", 0.5, 5, 2),
        ("background", 5, 300, 10),
        ("default", 1, 60, 5),
        ("saga_command", 0.01, 2, 10),
        ("grpc_connection", 0.1, 5, 30),
        ("projection", 2, 60, 4),
        ("event_handler", 0.1, 10, 3),
        ("no_retry", 0, 0, 1),
    ],
)
def test_named_policy_has_the_figures_of_the_spec(
    name: str, base: float, most: float, attempts: int
) -> None:
    policy = POLICIES[name]
    assert policy.name == name
    assert policy.base.total_seconds() == base
    assert policy.max_delay.total_seconds() == most
    assert policy.max_attempts == attempts
    assert policy.multiplier == 2


def test_no_named_policy_is_missing_from_this_test() -> None:
    assert len(POLICIES) == 14


def test_only_two_named_policies_jitter_in_their_own_way() -> None:
    own = {name: p.jitter for name, p in POLICIES.items() if p.jitter is not Jitter.ADDITIVE}
    assert own == {"projection": Jitter.NONE, "event_handler": Jitter.EQUAL}
    assert {policy.ratio for policy in POLICIES.values()} == {0.5}


def test_settings_change_a_known_policy_and_keep_the_rest_of_it() -> None:
    changed = policies_from({"webhook": {"max_attempts": 2}})
    assert changed["webhook"].max_attempts == 2
    assert changed["webhook"].base == POLICIES["webhook"].base
    assert POLICIES["webhook"].max_attempts == 5
    assert changed["crm_sync"] is POLICIES["crm_sync"]


def test_settings_define_a_new_policy() -> None:
    found = policies_from(
        {
            "billing": {
                "base": 0.25,
                "max_delay": timedelta(seconds=9),
                "max_attempts": 7,
                "multiplier": 3,
                "jitter": "full",
                "ratio": 0,
                "retry_on": ["transient", "server"],
            }
        }
    )
    assert found["billing"] == Policy(
        name="billing",
        base=timedelta(milliseconds=250),
        max_delay=timedelta(seconds=9),
        max_attempts=7,
        multiplier=3.0,
        jitter=Jitter.FULL,
        ratio=0.0,
        retry_on=frozenset({Category.TRANSIENT, Category.SERVER}),
    )
    assert named(found, "billing") is found["billing"]


def test_unknown_policy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match=r"'webhok'; known are: .*webhook"):
        named(POLICIES, "webhok")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"attempts": 3}, "unknown field attempts; known are: base, jitter, max_attempts"),
        ({"name": "other"}, "unknown field name"),
        ({"base": "soon"}, "base cannot be 'soon'"),
        ({"base": True}, "base cannot be True"),
        ({"max_attempts": 2.5}, "max_attempts cannot be 2.5"),
        ({"max_attempts": float("inf")}, "max_attempts cannot be inf"),
        ({"jitter": "some"}, "jitter cannot be 'some'"),
        ({"retry_on": "transient"}, "retry_on cannot be 'transient'"),
        ({"retry_on": ["often"]}, "retry_on cannot be"),
        ({"max_delay": 1e300}, "max_delay cannot be 1e"),
        ({"max_delay": 0.5}, "max_delay must not be less than base"),
    ],
)
def test_settings_that_cannot_work_name_policy_and_field(
    fields: dict[str, object], said: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"'mine'.*{said}"):
        policies_from({"mine": fields})


def test_filter_can_be_lifted_by_settings() -> None:
    narrow = policies_from({"webhook": {"retry_on": ["transient"]}})
    wide = policies_from({"webhook": {"retry_on": None}}, narrow)
    assert not narrow["webhook"].retries(Category.SERVER)
    assert wide["webhook"].retries(Category.SERVER)
