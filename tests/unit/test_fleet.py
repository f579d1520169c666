"""Which release came later, and what is unknown."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.fleet import (
    FleetRelease,
    Member,
    newer_releases,
    read_member,
    running_releases,
    told_member,
)
from hand_clock import START

names = st.text("ab12.", max_size=3)
moments = st.integers(0, 5).map(lambda days: START + timedelta(days))
releases = st.lists(
    st.builds(FleetRelease, name=names, first_seen_at=moments, last_seen_at=st.just(START)),
    unique_by=lambda release: release.name,
    max_size=5,
)
texts = st.text(st.characters(exclude_categories=()), max_size=5)
members = st.builds(
    Member,
    owner=texts,
    host=texts,
    pid=st.integers(),
    release=texts,
    handlers=st.lists(texts, max_size=3).map(tuple),
    queues=st.lists(texts, max_size=3).map(tuple),
    pool=texts,
    started_at=st.datetimes(timezones=st.just(UTC)),
)


def seen(*names: str) -> list[FleetRelease]:
    """Releases that were first seen in this order."""
    return [
        FleetRelease(name=name, first_seen_at=START + timedelta(n), last_seen_at=START)
        for n, name in enumerate(names)
    ]


def test_newer_is_what_was_first_seen_later_whatever_its_name():
    known = seen("v10", "v9", "hotfix")
    assert newer_releases("v10", {"v10", "v9", "hotfix"}, known) == {"v9", "hotfix"}
    assert newer_releases("v9", {"v10", "hotfix"}, known) == {"hotfix"}


def test_a_release_that_is_rolled_back_to_is_not_newer():
    assert newer_releases("v2", {"v1"}, seen("v1", "v2")) == frozenset()


def test_a_newer_release_that_no_longer_runs_does_not_count():
    assert newer_releases("v1", {"v1"}, seen("v1", "v2")) == frozenset()


@pytest.mark.parametrize("failed", ["", "never seen"])
def test_of_a_release_that_was_never_seen_nothing_is_known(failed):
    assert newer_releases(failed, {"v2"}, seen("v1", "v2")) is None


def test_a_nameless_release_is_never_known():
    assert newer_releases("", {"v1"}, seen("", "v1")) is None
    assert newer_releases("v1", {""}, seen("v1", "")) == frozenset()


@given(names, st.sets(names), releases)
def test_what_is_newer_runs_and_is_known_and_came_later(failed, running, known):
    newer = newer_releases(failed, running, known)
    at = {release.name: release.first_seen_at for release in known}
    assert (newer is None) == (failed == "" or failed not in at)
    if newer is not None:
        assert newer == {name for name in running if name and name in at and at[name] > at[failed]}


@given(names, names, releases)
def test_of_two_releases_at_most_one_is_newer(one, other, known):
    assert not (newer_releases(one, {other}, known) and newer_releases(other, {one}, known))


@given(names, st.sets(names), releases, st.randoms())
def test_the_order_in_which_they_are_told_does_not_matter(failed, running, known, chance):
    shuffled = chance.sample(known, len(known))
    assert newer_releases(failed, running, shuffled) == newer_releases(failed, running, known)


def worker(owner: str, release: str, *handlers: str) -> Member:
    return Member(
        owner=owner, host="h", pid=1, release=release, handlers=handlers, started_at=START
    )


def test_what_runs_is_told_for_all_or_for_one_handler():
    fleet = [worker("a", "v1", "sync"), worker("b", "v2", "mail"), worker("c", "", "mail")]
    assert running_releases(fleet) == {"v1", "v2", ""}
    assert running_releases(fleet, "mail") == {"v2", ""}
    assert running_releases(fleet, "sync") == {"v1"}
    assert running_releases(fleet, "gone") == frozenset()


# -- as text -----------------------------------------------------------------------------------


@given(members)
def test_a_member_is_read_as_it_was_told_and_travels_in_ascii(member):
    text = told_member(member)
    assert text.isascii()
    assert text.isprintable()
    assert read_member(member.owner, text) == member


def test_a_member_of_another_zone_is_read_in_utc():
    zone = timezone(timedelta(hours=2))
    local = datetime(2026, 1, 1, 14, tzinfo=zone)
    member = replace(worker("a", "v1"), started_at=local)
    assert read_member("a", told_member(member)).started_at.tzinfo is UTC


def test_what_a_newer_angzarr_says_besides_is_passed_over():
    member = worker("a", "v1", "sync")
    said = json.loads(told_member(member)) | {"region": "eu"}
    assert read_member("a", json.dumps(said)) == member


@pytest.mark.parametrize(
    "text",
    ["", "{", "null", "[]", "7", "[" * 100_000, '{"owner": "a"}', told_member(worker("b", "v1"))],
    ids=lambda text: text[:12],
)
def test_what_is_no_member_is_none(text):
    assert read_member("a", text) is None


@pytest.mark.parametrize(
    ("field", "odd"),
    [
        ("handlers", [1]), ("handlers", None), ("pid", "x"), ("pid", 1e999), ("release", 7),
        ("started_at", "soon"), ("started_at", None), ("queues", 3),
    ],
)  # fmt: skip
def test_a_member_with_an_odd_field_is_none(field, odd):
    said = json.loads(told_member(worker("a", "v1"))) | {field: odd}
    assert read_member("a", json.dumps(said)) is None
