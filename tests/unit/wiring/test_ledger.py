"""Which tables an app has to look after."""

from __future__ import annotations

import pytest

from angzarr.errors import ConfigurationError
from angzarr.maintenance.schema_versions import SchemaStanding
from angzarr.settings.settings import load
from angzarr.wiring import ledger as ledger_wiring

MEMORY, REDIS = "memory://", "redis://127.0.0.1:1"
POSTGRES = "postgresql+psycopg://us:s3cret@127.0.0.1:1/angzarr"


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch):
    for name in ("ANGZARR_BOOKS", "ANGZARR_LEDGER", "ANGZARR_ORDERING__URL", "ANGZARR_CONFIG"):
        monkeypatch.delenv(name, raising=False)


def names(broker=REDIS, **said):
    return list(ledger_wiring.openers(load(said, None), broker))


def test_all_that_have_a_database_are_looked_after():
    assert names(MEMORY) == ["ledger", "books", "ordering", "facts", "config"]
    assert names(ledger=POSTGRES) == ["ledger"]
    assert names(books=POSTGRES) == ["books", "ordering"]
    assert names(ordering={"url": POSTGRES}) == ["ordering"]
    assert names(MEMORY, books="memory://") == ["ledger", "facts", "config"]
    assert names(configuration={"url": POSTGRES}) == ["config"]
    without = names(MEMORY, store="memory://")
    assert without == ["ledger", "books", "ordering", "facts"]


def test_none_at_all_is_said_with_what_to_set():
    with pytest.raises(ConfigurationError, match=r"set ledger, books, facts\.url or"):
        names()


@pytest.mark.parametrize(
    ("name", "broker", "said", "told"),
    [
        ("ledger", REDIS, {}, "no ledger is configured"),
        ("books", REDIS, {}, "set books, e.g."),
        ("ordering", REDIS, {}, r"set ordering\.url, e\.g\."),
        ("facts", REDIS, {}, r"set facts\.url or ANGZARR_FACTS__URL to a database"),
        ("facts", REDIS, {"facts": {"url": "memory://x"}}, "in memory, where there are no tables"),
        ("config", REDIS, {}, "configurations are kept in Redis, where there are no tables"),
        ("config", "amqp://h", {}, r"set configuration\.url, e\.g\."),
        ("books", MEMORY, {"books": "memory://"}, "in memory, where there are no tables"),
    ],
)
def test_what_is_named_and_has_no_database_is_said_with_what_to_set(name, broker, said, told):
    (open_,) = ledger_wiring.openers(load(said, None), broker, [name]).values()
    with pytest.raises(ConfigurationError, match=told):
        open_()


@pytest.mark.parametrize("name", ledger_wiring.NAMES)
def test_tables_are_made_and_closed_twice(tmp_path, name):
    url = f"sqlite:///{tmp_path / 'all.db'}"
    said = {"ledger": url, "books": url, "facts": {"url": url}, "configuration": {"url": url}}
    upkeep = ledger_wiring.openers(load(said, None), MEMORY, [name])[name]()
    assert upkeep.revision().standing is SchemaStanding.MISSING
    assert upkeep.upgrade().standing is SchemaStanding.MISSING
    assert upkeep.revision().standing is SchemaStanding.CURRENT
    assert list(upkeep.differences()) == []
    upkeep.close()
    upkeep.close()
