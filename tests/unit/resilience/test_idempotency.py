from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.resilience.idempotency import (
    MAX_PART,
    config_key,
    entity_key,
    external_key,
    fact_key,
    key_for,
    key_part,
)

NOON = datetime(2026, 3, 1, 12, 0, 0, 250, tzinfo=UTC)

#: Texts that try to look like separators, escapes, digests and times.
tricky = st.text(alphabet="a_:%.-2F5", max_size=6) | st.text(max_size=300)
tricky = tricky | st.sampled_from(["a_20260301T120000.000250Z_b", "%5F", "%." + "0" * 40])
times = st.datetimes(timezones=st.just(UTC))


def test_keys_are_readable() -> None:
    assert (
        fact_key("circuit_breaker_state_changed", NOON, "crm")
        == "fact_circuit_breaker_state_changed_20260301T120000.000250Z_crm"
    )
    assert entity_key("hand_history", "h-1", NOON) == (
        "entity_hand_history_h-1_20260301T120000.000250Z"
    )
    assert config_key("poker_rules", "v7", NOON) == (
        "config_poker_rules_v7_20260301T120000.000250Z"
    )
    assert external_key("stripe", "create_charge", "e-1", 2) == (
        "external_stripe_create_charge_e-1-2"
    )
    assert key_for("shop.tasks.sync", "e-1") == "idempotency:shop.tasks.sync:e-1"


def test_same_moment_in_another_zone_is_the_same_key() -> None:
    berlin = NOON.astimezone(timezone(timedelta(hours=1)))
    assert fact_key("t", berlin, "e") == fact_key("t", NOON, "e")


def test_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="aware"):
        fact_key("t", datetime(2026, 3, 1), "e")  # noqa: DTZ001 - that is the case


BUILDERS = [
    (key_for, (tricky, tricky)),
    (fact_key, (tricky, times, tricky)),
    (entity_key, (tricky, tricky, times)),
    (config_key, (tricky, tricky, times)),
    (external_key, (tricky, tricky, tricky, st.integers(1, 99))),
]
builders = pytest.mark.parametrize(
    ("build", "parts"), BUILDERS, ids=[build.__name__ for build, _ in BUILDERS]
)


@builders
@given(data=st.data())
def test_different_parts_never_share_a_key(build, parts, data) -> None:
    one, other = (data.draw(st.tuples(*parts)) for _ in range(2))
    assert (build(*one) == build(*other)) is (one == other)


@pytest.mark.parametrize(
    ("build", "one", "other"),
    [
        (fact_key, ("a", NOON, "b_c"), ("a_b", NOON, "c")),
        (
            fact_key,
            ("a", NOON, "b_20260301T120000.000250Z_c"),
            ("a_20260301T120000.000250Z_b", NOON, "c"),
        ),
        (entity_key, ("a", "b_c", NOON), ("a_b", "c", NOON)),
        (config_key, ("a", "b_c", NOON), ("a_b", "c", NOON)),
        (external_key, ("a", "b_c", "d", 1), ("a_b", "c", "d", 1)),
        (external_key, ("a", "b", "c_d", 1), ("a", "b_c", "d", 1)),
        (external_key, ("a", "b", "c-1", 2), ("a", "b", "c", 12)),
        (key_for, ("a:b", "c"), ("a", "b:c")),
        (key_for, ("a%3Ab", "c"), ("a:b", "c")),
        (key_for, ("x" * 300, "c"), ("x" * 301, "c")),
    ],
)
def test_parts_that_look_alike_do_not_collide(build, one, other) -> None:
    assert build(*one) != build(*other)


@builders
@given(data=st.data())
def test_keys_are_bounded_printable_and_deterministic(build, parts, data) -> None:
    values = data.draw(st.tuples(*parts))
    key = build(*values)
    limit = 2 * MAX_PART + len("idempotency::") if build is key_for else MAX_PART
    assert len(key) <= limit
    assert key == build(*values)
    assert key.encode("utf-8")
    assert not set(key) & {" ", "\n", "\x00", "\t"}


@given(tricky)
def test_part_that_was_cut_looks_like_no_other_part(text) -> None:
    cut = key_part("y" * (MAX_PART + 1))
    assert len(cut) <= MAX_PART
    assert key_part(text) != cut
    assert key_part(cut) != cut


def test_lone_surrogates_and_control_characters_can_be_stored() -> None:
    key = key_for("handler", "a\ud800\x00\n")
    assert key.encode("utf-8") == b"idempotency:handler:a%ED%A0%80%00%0A"
