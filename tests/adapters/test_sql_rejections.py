from __future__ import annotations

from dataclasses import replace
from datetime import UTC, timedelta
from uuid import uuid4

import pytest
from pydantic import BaseModel
from sqlalchemy import text
from tests.adapters.sql_sides import OnPostgresql, OnSqlite
from tests.chain_world import a_rejection
from tests.contracts.rejections import RejectionLogContract, a_case
from tests.hand_clock import START

from angzarr.adapters.sql.event_store.rejections import SqlRejectionLog
from angzarr.sagas.log import case_of


class Seat(BaseModel):
    player_id: str = "p-1"


class SqlRejectionsContract(RejectionLogContract):
    @pytest.fixture
    def log(self, engine):
        return SqlRejectionLog(engine)

    def test_the_moment_of_the_first_rejection_is_told_each_time(self, log):
        first = START + timedelta(microseconds=123456)
        rejection = replace(a_rejection(Seat(), id=uuid4().hex), rejected_at=first)
        later = replace(rejection, rejected_at=first + timedelta(seconds=9))
        for one in (rejection, later, later):
            kept = log.note(case_of(one, one.rejected_at))
            assert kept.rejected_at.astimezone(UTC).isoformat() == first.isoformat()


class TestSqliteRejectionLog(OnSqlite, SqlRejectionsContract):
    pass


class TestPostgresqlRejectionLog(OnPostgresql, SqlRejectionsContract):
    def test_a_list_waits_for_nobody_who_notes(self, log, engine):
        case = a_case()
        log.note(case)
        held = text("SELECT * FROM rejected_commands WHERE id = :id FOR UPDATE")
        with engine.begin() as connection:
            connection.execute(held, {"id": case.id})
            assert log.look(case.id) == [case]
