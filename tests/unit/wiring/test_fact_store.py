from __future__ import annotations

import gzip
import json
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
from tests.apps import apps
from tests.contracts.facts import a_fact

from angzarr.adapters.memory.facts import forget
from angzarr.errors import ConfigurationError, MissingExtra
from angzarr.facts.query import EVERY
from angzarr.settings.settings import load
from angzarr.wiring.fact_store import open_fact_pruning
from angzarr.wiring.startup_checks import check_configured
from polling import wait_until


@pytest.mark.parametrize("kind", ["sqlite", "memory"])
def test_what_an_app_appends_can_be_asked(tmp_path, kind):
    url = f"sqlite:///{tmp_path / 'facts.db'}" if kind == "sqlite" else "memory://asked"
    with apps(broker="memory://", store="memory://", facts={"url": url}) as make:
        app = make()
        app.ops.facts.append([a_fact()])
        app.ops.facts.close()
        store = app.ops.open_fact_store()
        assert store.find(EVERY).facts == (a_fact(),)
        assert store.add(a_fact()) == a_fact()
        store.close()
    forget(url)


def test_an_app_whose_facts_are_log_lines_says_what_to_set(tmp_path):
    redis = "redis://127.0.0.1:1/0"
    with apps(broker=redis, store=redis) as make:
        app = make()
        with pytest.raises(
            ConfigurationError, match=r"no database that can be asked: set facts\.url"
        ):
            app.ops.open_fact_store()


_SHARED = {"store": "redis://x", "dlq": {"backend": "kafka", "kafka_brokers": "x:1"}}
_BUDGET = {"budgets": {"all": {"amount": "5", "currency": "EUR"}}}


def test_budgets_without_facts_start_no_worker():
    with pytest.raises(ConfigurationError, match=r"^costs.budgets are added .* set facts.url"):
        check_configured(load({**_SHARED, "costs": _BUDGET}), "redis://x")
    check_configured(load({**_SHARED}), "redis://x")
    check_configured(load({"costs": _BUDGET}), "memory://")


def test_a_database_of_facts_without_its_driver_starts_no_worker(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    facts = {"url": "postgresql+psycopg://nowhere.invalid/x"}
    with pytest.raises(MissingExtra, match=r"pip install 'angzarr-workers\[postgresql\]'"):
        check_configured(load({**_SHARED, "facts": facts}), "redis://x")


def facts_of(tmp_path, **more):
    url = f"sqlite:///{tmp_path / 'facts.db'}"
    return {"broker": "memory://", "store": "memory://", "facts": {"url": url, **more}}


def test_facts_are_kept_for_ever_unless_it_is_said_for_how_long(tmp_path):
    with apps(**facts_of(tmp_path)) as make:
        app = make()
        assert open_fact_pruning(app.ops.settings, app.ops.broker_url) is None


def test_old_facts_are_exported_and_deleted_by_a_thread(tmp_path):
    with apps(**facts_of(tmp_path, keep="40d", export=str(tmp_path / "old"))) as make:
        app, now = make(), datetime.now(UTC)
        with closing(app.ops.open_fact_store()) as store:
            for name, days in (("old", 41), ("young", 39)):
                store.add(a_fact(name, at=now - timedelta(days=days)))
            thread = open_fact_pruning(app.ops.settings, app.ops.broker_url)
            thread.start()
            wait_until(lambda: [one.id for one in store.find(EVERY).facts] == ["young"])
            thread.end()
        (file,) = (tmp_path / "old").iterdir()
        (line,) = gzip.decompress(file.read_bytes()).splitlines()
        assert json.loads(line)["id"] == "old"


def test_what_cannot_be_exported_stays_and_is_told(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    with apps(**facts_of(tmp_path, keep="40d", export=str(tmp_path / "file"))) as make:
        app = make()
        with closing(app.ops.open_fact_store()) as store:
            old = a_fact(at=datetime.now(UTC) - timedelta(days=41))
            store.add(old)
            thread = open_fact_pruning(app.ops.settings, app.ops.broker_url)
            thread.start()
            wait_until(lambda: "pruning_waits: facts: facts cannot be exported" in caplog.text)
            thread.end()
            assert store.find(EVERY).facts == (old,)
