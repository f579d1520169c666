from __future__ import annotations

import pytest
from sqlalchemy import select
from tests.adapters.sql_sides import OnPostgresql, OnSqlite
from tests.contracts.idempotency import LONG, SHORT
from tests.contracts.steps import CHARGE, RESERVE, SHIP, StepLogContract

from angzarr.adapters.sql.delivery.claim_tables import finished_steps
from angzarr.adapters.sql.delivery.idempotency import SqlIdempotencyStore
from angzarr.adapters.sql.delivery.steps import SqlStepLog


class SqlStepLogContract(StepLogContract):
    @pytest.fixture
    def store(self, engine):
        return SqlIdempotencyStore(engine)

    @pytest.fixture
    def make_log(self, engine):
        return lambda life: SqlStepLog(engine, life=life)

    def test_sweep_deletes_what_expired_and_no_more_than_its_limit(
        self, make_log, claim, engine, let_pass
    ):
        short, long = claim()[0], claim()[0]
        for step in (RESERVE, CHARGE, SHIP):
            make_log(SHORT).add(short, step)
            make_log(LONG).add(long, step)
        let_pass(SHORT)
        log = make_log(SHORT)
        assert log.sweep(limit=2) == 2
        while log.sweep(limit=2):
            pass
        kept = select(finished_steps.c.name).where(finished_steps.c.key.in_([short.key, long.key]))
        with engine.connect() as connection:
            names = {row.name for row in connection.execute(kept)}
        assert names == {RESERVE.name, CHARGE.name, SHIP.name}
        assert log.read(long).steps == (RESERVE, CHARGE, SHIP)


class TestSqliteStepLog(OnSqlite, SqlStepLogContract):
    pass


class TestPostgresqlStepLog(OnPostgresql, SqlStepLogContract):
    pass
