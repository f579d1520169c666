from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import inspect, text
from tests.contracts.rejections import RejectionLogContract, a_case
from tools.tcp_proxy import unused_port

from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.event_store.rejections import SqlRejectionLog
from angzarr.errors import StoreUnavailable
from angzarr.sagas.log import CaseFilter

PATIENT = timedelta(seconds=30)


class OnSql(RejectionLogContract):
    """Subclasses give the `url`."""

    @pytest.fixture
    def engine(self, url):
        engine = build_engine(url, timeout=PATIENT)
        yield engine
        engine.dispose()

    @pytest.fixture
    def log(self, engine):
        return SqlRejectionLog(engine)


class TestSqliteRejectionLog(OnSql):
    @pytest.fixture
    def url(self, tmp_path):
        return f"sqlite:///{tmp_path / 'books.db'}"

    def test_its_table_comes_with_the_first_verb(self, log, engine):
        log.cases(CaseFilter(), limit=1)
        assert "rejected_commands" in inspect(engine).get_table_names()


class TestPostgresqlRejectionLog(OnSql):
    @pytest.fixture
    def url(self, postgresql_url):
        return postgresql_url

    def test_a_list_waits_for_nobody_who_notes(self, log, engine):
        case = a_case()
        log.note(case)
        held = text("SELECT * FROM rejected_commands WHERE id = :id FOR UPDATE")
        with engine.begin() as connection:
            connection.execute(held, {"id": case.id})
            assert log.look(case.id) == [case]


def test_a_server_that_is_down_is_unavailable_and_the_password_stays_secret():
    log = SqlRejectionLog(build_engine(f"postgresql://u:s3cret@127.0.0.1:{unused_port()}/x"))
    with pytest.raises(StoreUnavailable) as caught:
        log.note(a_case())
    assert "s3cret" not in f"{caught.value} {caught.value.__cause__!r}"
