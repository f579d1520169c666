from __future__ import annotations

import pytest
from tests.contracts.fact_reader import FactReaderContract, a_cost, an_error
from tests.contracts.facts import a_fact
from tools.tcp_proxy import unused_port

from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.facts.log import SqlFactLog
from angzarr.adapters.sql.facts.reader import SqlFactReader
from angzarr.adapters.sql.facts.tables import FACTS
from angzarr.errors import Unavailable
from angzarr.facts.query import EVERY, FactField, FactQuery


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request, tmp_path):
    if request.param == "sqlite":
        engine = build_engine(f"sqlite:///{tmp_path}/facts.db")
    else:
        engine = build_engine(request.getfixturevalue("postgresql_url"))
    FACTS.metadata.drop_all(engine)  # others may have left facts
    yield engine
    FACTS.metadata.drop_all(engine)
    engine.dispose()


@pytest.fixture
def reader(engine):
    return SqlFactReader(engine)


class TestSqlFactReader(FactReaderContract):
    @pytest.fixture
    def book(self, reader):
        return reader


def test_facts_of_the_log_are_read(engine, reader):
    log = SqlFactLog(engine)
    log.append([a_fact(), an_error("i" * 700)])
    log.close()
    assert len(reader.find(EVERY).facts) == 2
    assert reader.get("i" * 700).type == "error"


def test_a_long_text_is_found_as_it_was_cut(reader):
    reader.add(a_fact(tool_id="x" * 600))
    page = reader.find(EVERY)
    assert page.facts[0].tool_id == "x" * 500
    assert reader.find(FactQuery(tool_id="x" * 600)).facts == page.facts


def test_a_database_that_is_away_is_said():
    reader = SqlFactReader(f"postgresql+psycopg://none@127.0.0.1:{unused_port()}/none")
    for ask in (
        lambda: reader.find(EVERY),
        lambda: reader.stats(EVERY, [FactField.DAY]),
        lambda: reader.add(a_cost("a", "1")),
    ):
        with pytest.raises(Unavailable):
            ask()
    reader.close()
    reader.close()
