"""Facts are deleted by age, and never unexported."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from threading import Barrier

import pytest
from tests.adapters.test_sql_facts import engine, ids, log, url  # noqa: F401 - fixtures
from tests.contracts.facts import AT, a_fact

from angzarr.adapters.sql.facts.pruner import ExportedFacts, FactPruner
from angzarr.errors import Unavailable


def aged(count: int):
    return [a_fact(f"f{day}", at=AT + timedelta(days=day)) for day in range(count)]


@pytest.fixture
def filled(log):  # noqa: F811
    log.append(aged(10))
    log.close()
    return log


def test_facts_before_a_time_are_exported_oldest_first_and_deleted(filled, engine):  # noqa: F811
    pruner, exported = FactPruner(engine, batch=3), []
    before = AT + timedelta(days=7)
    assert pruner.count(before) == 7
    assert pruner.prune(before, exported.extend) == 7
    assert exported == aged(10)[:7]
    assert ids(filled.read()) == ["f7", "f8", "f9"]
    assert pruner.prune(before, exported.extend) == 0


def test_what_cannot_be_exported_stays(filled, engine):  # noqa: F811
    exported = []

    def export(facts):
        if exported:
            raise OSError("no space left on device")
        exported.extend(facts)

    with pytest.raises(OSError, match="no space left"):
        FactPruner(engine, batch=3).prune(AT + timedelta(days=9), export)
    assert ids(exported) == ["f0", "f1", "f2"]
    assert ids(filled.read()) == [f"f{day}" for day in range(3, 10)]


def test_no_fact_is_deleted_behind_a_pruning(filled, engine):  # noqa: F811
    FactPruner(engine).prune(AT + timedelta(days=1), lambda _facts: None)
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM fact_pruning").scalar() == 0


def test_a_time_without_a_zone_is_refused(engine):  # noqa: F811
    with pytest.raises(ValueError, match="has no zone"):
        FactPruner(engine).prune(datetime(2026, 1, 1), print)  # noqa: DTZ001 - that is the test


def test_a_database_without_the_table_is_left_as_it_is(engine):  # noqa: F811
    with pytest.raises(Unavailable, match="angzarr database upgrade facts"):
        FactPruner(engine).prune(AT, print)


def test_some_are_pruned_at_a_time_and_none_without_its_export(filled, engine):  # noqa: F811
    def broken(_facts):
        raise OSError("no space left on device")

    pruner, exported, before = FactPruner(engine), [], AT + timedelta(days=7)
    with pytest.raises(OSError, match="no space left"):
        pruner.prune_some(before, broken, 3)
    assert pruner.count(before) == 7
    dated = ExportedFacts(pruner, exported.extend)
    assert [dated.prune(before, limit=3) for _ in range(4)] == [3, 3, 1, 0]
    assert exported == aged(10)[:7]
    assert ids(filled.read()) == ["f7", "f8", "f9"]


def test_of_two_who_prune_at_once_each_fact_is_exported_before_it_is_deleted(log, engine):  # noqa: F811
    log.append([a_fact(f"f{number:03}") for number in range(200)])
    log.append([a_fact("new", at=AT + timedelta(days=9))])
    log.close()
    together, exported, deleted = Barrier(2), [], []

    def export(facts):
        exported.extend(facts)
        if len(exported) <= 40:  # both have read before one of them deletes
            together.wait(60)

    def prune(day):
        pruner, failures = FactPruner(engine), 0
        before = AT + timedelta(days=day)
        while pruner.count(before):
            try:
                deleted.append(pruner.prune_some(before, export, 20))
            except Unavailable:  # two transactions in each other's way: it is tried again
                failures += 1
                assert failures < 100

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(prune, (1, 2)))
    assert {fact.id for fact in exported} == {f"f{number:03}" for number in range(200)}
    assert sum(deleted) == 200
    assert ids(log.read()) == ["new"]
