"""Random chains with rejections, crashes and redeliveries, on real Redis and PostgreSQL."""

from __future__ import annotations

import pytest

from saga_model import runs

#: Runs in CI; `make bench ONLY=saga_model_runs` makes a thousand.
RUNS = 40


@pytest.fixture
def site(redis_url, postgresql_url, monkeypatch):
    with runs.card_room(redis_url, postgresql_url, monkeypatch.setenv) as site:
        yield site


def test_money_is_constant_and_nothing_stays_reserved_whatever_crashes(site):
    crashes = repeated = letters = compensated = 0
    for seed in range(RUNS):
        account = runs.run(site, seed)
        assert account.problems == [], f"seed {seed}: {account}"
        crashes += account.told.crashes
        repeated += account.told.repeated
        letters += account.told.letters
        compensated += account.cases.get("compensated", 0)
    assert min(crashes, repeated, letters, compensated) > RUNS // 4, "the runs tried too little"
