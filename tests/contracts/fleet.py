"""What every register of a fleet must do. Each adapter's tests subclass this on the real server."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from angzarr.fleet import Fleet, Member, newer_releases
from angzarr.resilience.idempotency import OwnerLeases

LONG = timedelta(minutes=10)
#: A lease, or how long something is kept, in tests that let it pass on a real server.
SHORT = timedelta(milliseconds=150)
#: What stores tell apart: two releases of one moment are of the same age.
A_MOMENT = timedelta(milliseconds=5)
CONTENDERS = 20

MakeFleet = Callable[..., Fleet]


def fresh() -> str:
    return uuid.uuid4().hex


def member(owner: str, release: str = "", **said: object) -> Member:
    began = datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)
    given = {"host": "h", "pid": 7, "started_at": began, **said}
    return Member(owner=owner, release=release, **given)


class FleetContract:
    """Subclasses give `make_fleet`, `leases` and `let_pass`.

    A fleet is made with how long it keeps releases (`life`) and what members said (`said_life`);
    it is empty at first, and goes by *leases*.
    """

    @pytest.fixture
    def make_fleet(self) -> MakeFleet:
        raise NotImplementedError

    @pytest.fixture
    def leases(self) -> OwnerLeases:
        raise NotImplementedError

    @pytest.fixture
    def let_pass(self) -> Callable[[timedelta], None]:
        raise NotImplementedError

    @pytest.fixture
    def fleet(self, make_fleet):
        return make_fleet()

    @pytest.fixture
    def enter(self, fleet, leases):
        """Register a worker whose lease runs for *span*."""

        def enter(said: Member, span: timedelta = LONG) -> None:
            leases.renew(said.owner, span)
            fleet.register(said)

        return enter

    @pytest.fixture
    def owners(self, fleet):
        return lambda: [one.owner for one in fleet.members()]

    @pytest.fixture
    def names(self, fleet):
        """Tell the releases in the order in which they were first seen."""
        return lambda: [release.name for release in fleet.releases()]

    # -- members ------------------------------------------------------------------------------

    def test_there_is_nobody_at_first(self, fleet):
        assert list(fleet.members()) == []
        assert list(fleet.releases()) == []

    def test_a_member_is_told_as_it_said_of_itself(self, enter, fleet):
        many = tuple(sorted(f"shop.tasks.größe_{n}" for n in range(500)))
        said = member(
            "host:7:abc", "v1 \"ü\" \\ \n '%s' :x", handlers=many, queues=("a b", "é\u202e", "z"),
            pool="prefork", host="höst", pid=4_194_304,
        )  # fmt: skip
        enter(said)
        assert list(fleet.members()) == [said]
        assert [release.name for release in fleet.releases()] == [said.release]

    def test_members_come_by_owner(self, enter, owners):
        for owner in ("b", "c", "a"):
            enter(member(owner))
        assert owners() == ["a", "b", "c"]

    def test_registered_twice_is_one_member_and_what_it_said_last_counts(self, enter, fleet):
        enter(member("a", queues=("x", "y")))
        enter(member("a", queues=("y",)))
        enter(member("a", queues=("y",)))
        assert list(fleet.members()) == [member("a", queues=("y",))]

    def test_nobody_is_a_member_without_a_lease(self, fleet, owners, leases):
        fleet.register(member("a"))
        leases.renew("b", LONG)
        assert owners() == []

    def test_a_member_whose_lease_ended_is_none(self, enter, owners, leases, let_pass):
        enter(member("killed"), SHORT)
        enter(member("stopped"))
        enter(member("lives"))
        leases.end("stopped")
        let_pass(SHORT)
        assert owners() == ["lives"]

    def test_a_member_whose_lease_is_renewed_goes_on_as_it_was(
        self, enter, fleet, leases, let_pass
    ):
        said = member("a", handlers=("h",))
        enter(said, SHORT)
        leases.renew("a", LONG)
        let_pass(SHORT)
        assert list(fleet.members()) == [said]

    def test_who_was_away_for_a_while_is_a_member_with_its_lease(
        self, enter, owners, leases, let_pass
    ):
        enter(member("late"), SHORT)
        let_pass(SHORT)
        enter(member("other"))
        leases.renew("late", LONG)
        assert owners() == ["late", "other"]

    def test_what_was_not_said_again_is_forgotten_by_the_next_that_registers(
        self, make_fleet, leases, let_pass
    ):
        fleet = make_fleet(said_life=4 * SHORT)
        for owner in ("silent", "says it again", "other"):
            leases.renew(owner, LONG)
        fleet.register(member("silent"))
        fleet.register(member("says it again"))
        let_pass(4 * SHORT)
        fleet.register(member("says it again"))
        fleet.register(member("other"))
        assert [one.owner for one in fleet.members()] == ["other", "says it again"]

    def test_many_who_register_at_once_are_all_members_and_their_release_is_one(self, enter, fleet):
        with ThreadPoolExecutor(CONTENDERS) as pool:
            list(pool.map(lambda n: enter(member(f"w{n:02}", "v1")), range(CONTENDERS)))
        assert len(fleet.members()) == CONTENDERS
        (release,) = fleet.releases()
        assert release.first_seen_at <= release.last_seen_at

    # -- releases -----------------------------------------------------------------------------

    def test_releases_come_in_the_order_in_which_they_were_first_seen(self, fleet, names, let_pass):
        for name in ("2.9", "2.10", "1.0"):
            fleet.register(member(name, name))
            let_pass(A_MOMENT)
        fleet.register(member("again", "2.9"))
        assert names() == ["2.9", "2.10", "1.0"]
        assert newer_releases("2.9", names(), fleet.releases()) == {"2.10", "1.0"}
        assert newer_releases("1.0", names(), fleet.releases()) == frozenset()

    def test_a_release_seen_again_is_as_old_as_it_was(self, fleet, let_pass):
        fleet.register(member("a", "v1"))
        (before,) = fleet.releases()
        assert before.first_seen_at <= before.last_seen_at
        let_pass(A_MOMENT)
        fleet.register(member("b", "v1"))
        (after,) = fleet.releases()
        assert after == replace(before, last_seen_at=after.last_seen_at)
        assert after.last_seen_at > before.last_seen_at

    def test_a_release_outlives_its_last_worker(self, enter, names, leases, let_pass):
        enter(member("killed", "v1"), SHORT)
        enter(member("stopped", "v2"))
        leases.end("stopped")
        let_pass(SHORT)
        enter(member("other"))
        assert sorted(names()) == ["v1", "v2"]

    def test_a_worker_that_names_no_release_adds_none(self, fleet, names):
        fleet.register(member("a"))
        assert names() == []

    def test_a_release_that_nobody_ran_for_long_is_forgotten_and_new_when_it_comes_back(
        self, make_fleet, let_pass
    ):
        fleet = make_fleet(life=SHORT)
        fleet.register(member("a", "old"))
        (first,) = fleet.releases()
        let_pass(SHORT)
        fleet.register(member("b", "new"))
        assert [release.name for release in fleet.releases()] == ["new"]
        fleet.register(member("a", "old"))
        back = {release.name: release for release in fleet.releases()}["old"]
        assert back.first_seen_at >= first.first_seen_at + SHORT

    def test_a_release_whose_workers_say_it_again_is_not_forgotten(self, make_fleet, let_pass):
        life = 6 * SHORT
        fleet = make_fleet(life=life)
        fleet.register(member("a", "v1"))
        (first,) = (seen,) = fleet.releases()
        while seen.last_seen_at - first.first_seen_at <= life:
            let_pass(A_MOMENT)
            fleet.register(member("a", "v1"))
            (seen,) = fleet.releases()
        assert seen.first_seen_at == first.first_seen_at

    def test_a_release_that_comes_back_itself_after_its_life_is_new(self, make_fleet, let_pass):
        fleet = make_fleet(life=SHORT)
        fleet.register(member("a", "v1"))
        (first,) = fleet.releases()
        let_pass(SHORT)
        fleet.register(member("a", "v1"))
        (back,) = fleet.releases()
        assert back.first_seen_at >= first.first_seen_at + SHORT
