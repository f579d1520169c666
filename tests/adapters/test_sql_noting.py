"""A log of rejections in SQL says what it keeps of a case, to the microsecond."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, timedelta
from uuid import uuid4

import pytest
from pydantic import BaseModel
from tests.chain_world import a_rejection
from tests.hand_clock import START

from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.event_store.rejections import SqlRejectionLog
from angzarr.sagas.log import case_of

FIRST = START + timedelta(microseconds=123456)


class Seat(BaseModel):
    player_id: str = "p-1"


@pytest.fixture(params=["sqlite", "postgresql"])
def log(request, tmp_path):
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'books.db'}"
    else:
        url = request.getfixturevalue("postgresql_url")
    log = SqlRejectionLog(build_engine(url))
    yield log
    log.close()


def test_the_moment_of_the_first_rejection_is_told_each_time(log):
    rejection = replace(a_rejection(Seat(), id=uuid4().hex), rejected_at=FIRST)
    later = replace(rejection, rejected_at=FIRST + timedelta(seconds=9))
    for one in (rejection, later, later):
        kept = log.note(case_of(one, one.rejected_at))
        assert kept.rejected_at.astimezone(UTC).isoformat() == FIRST.isoformat()
