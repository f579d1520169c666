"""Until when a process may rely on its owner's lease."""

from __future__ import annotations

from datetime import timedelta

import pytest

from angzarr.errors import StoreUnavailable
from angzarr.resilience.claim_memory import Tenure

SPAN = timedelta(seconds=8)


class Leases:
    """Takes its time with each renewal; notes them."""

    def __init__(self):
        self.now, self.takes, self.away = 100.0, 0.0, False
        self.renewed, self.ended = [], []

    def renew(self, owner, span):
        if self.away:
            msg = "away"
            raise StoreUnavailable(msg)
        self.now += self.takes
        self.renewed.append((owner, span))

    def end(self, owner):
        self.ended.append(owner)


@pytest.fixture
def leases():
    return Leases()


@pytest.fixture
def tenure(leases):
    return Tenure(leases, span=SPAN, monotonic=lambda: leases.now)


def test_a_lease_counts_from_before_its_renewal(tenure, leases):
    leases.takes = 3.0
    assert tenure.renew("me") == 108.0, "the server may have heard of it at once"
    leases.now = 107.9
    assert not tenure.is_over(108.0)
    leases.now = 108.0
    assert tenure.is_over(108.0)


def test_a_lease_is_renewed_where_nobody_did_lately_and_else_it_is_known(tenure, leases):
    for now, until, renewals in [(100, 108, 1), (104, 108, 1), (104.1, 112.1, 2), (900, 908, 3)]:
        leases.now = now
        assert (tenure.secured("me"), len(leases.renewed)) == (until, renewals)
    assert set(leases.renewed) == {("me", SPAN)}


def test_what_is_known_is_known_of_one_owner(tenure, leases):
    tenure.secured("me")
    assert tenure.secured("you") == 108.0
    assert [owner for owner, _ in leases.renewed] == ["me", "you"]


def test_a_lease_that_was_ended_is_not_relied_on(tenure, leases):
    tenure.secured("me")
    tenure.end("me")
    tenure.secured("me")
    assert (len(leases.renewed), leases.ended) == (2, ["me"])


def test_a_renewal_that_fails_is_told_and_changes_nothing(tenure, leases):
    tenure.secured("me")
    leases.now, leases.away = 106.0, True
    with pytest.raises(StoreUnavailable):
        tenure.secured("me")
    leases.away = False
    assert tenure.secured("me") == 114.0
