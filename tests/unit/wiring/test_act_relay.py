"""Facts of acts on the ledger come to where facts go, by the relay of an analysis worker."""

from __future__ import annotations

import logging
from contextlib import closing
from datetime import timedelta

import pytest
from tests.apps import apps
from tests.contracts.ledger import letter_of

from angzarr.adapters.memory.facts import forget, shared
from angzarr.adapters.sql.facts.log import SqlFactLog
from angzarr.analysis.ledger.operator_actions import Act, Verb
from angzarr.analysis.worker.worker import AnalysisHealth
from angzarr.errors import ConfigurationError
from angzarr.facts.act import ActOrigin, acting_from
from angzarr.wiring.analysis_worker import open_worker
from polling import wait_until


@pytest.fixture
def make(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with apps(broker="memory://", store="memory://", ledger=f"sqlite:///{tmp_path}/l.db") as make:
        yield make


def skip(app, event_id="e1"):
    """Skip an entry as a person does at the command line; return its id."""
    with closing(app.ops.open_ledger()) as ledger, acting_from(ActOrigin.CLI):
        entry = ledger.add_failed_event(letter_of(event_id))
        acts = [Act(entry_id=entry.id, revision=entry.revision, verb=Verb.SKIP, note="a test")]
        assert ledger.act(acts, by="ann") == [True]
    return entry.id


def move(app):
    relay = app.ops.open_act_relay()
    relay.turn()
    relay.end()


def lines(caplog):
    """How many lines tell of the act."""
    return sum("entry_skipped" in record.getMessage() for record in caplog.records)


def facts_in(url):
    log = SqlFactLog(url)
    facts = log.read()
    log._engine.dispose()
    return facts


def test_they_are_moved_to_the_table_once(make, tmp_path):
    url = f"sqlite:///{tmp_path}/facts.db"
    app = make(facts={"url": url})
    entry_id = skip(app)
    move(app)
    move(app)
    (fact,) = facts_in(url)
    assert (fact.subtype, fact.data["entry_id"]) == ("entry_skipped", entry_id)
    assert (fact.data["by"], fact.data["origin"]) == ("ann", "cli")


def test_log_lines_come_once_the_table_has_them(make, tmp_path, caplog):
    folder = tmp_path / "not yet"
    app = make(facts={"url": f"sqlite:///{folder}/facts.db", "log": True})
    skip(app)
    with caplog.at_level(logging.INFO, "angzarr.facts"):
        move(app)
        assert lines(caplog) == 0
        folder.mkdir()
        move(app)
    assert lines(caplog) == 1


def test_facts_of_a_test_are_kept_in_its_memory(make):
    app = make(facts={"url": "memory://acts"})
    skip(app)
    move(app)
    assert [fact.subtype for fact in shared("memory://acts").read()] == ["entry_skipped"]
    forget("memory://acts")


def test_a_table_that_is_away_loses_none(make, tmp_path):
    folder = tmp_path / "not yet"
    url = f"sqlite:///{folder}/facts.db"
    app = make(facts={"url": url})
    skip(app)
    move(app)
    folder.mkdir()
    move(app)
    assert [fact.subtype for fact in facts_in(url)] == ["entry_skipped"]


def test_an_analysis_worker_moves_them_and_leaves_none_behind(make, tmp_path):
    url = f"sqlite:///{tmp_path}/facts.db"
    app = make(facts={"url": url})
    with open_worker(app.ops, ["order"]) as worker:
        skip(app)
        assert worker.facts_say() == ""
    assert [fact.subtype for fact in facts_in(url)] == ["entry_skipped"]


def test_an_analysis_worker_tells_probes_what_keeps_them(make, tmp_path, monkeypatch):
    monkeypatch.setattr("angzarr.facts.relay.STUCK_AFTER", timedelta(0))
    app = make(facts={"url": f"sqlite:///{tmp_path}/not yet/facts.db"})
    with open_worker(app.ops, ["order"]) as worker:
        skip(app)
        wait_until(lambda: "1 of them" in worker.facts_say())
        worker.step()
        health = AnalysisHealth(worker, stalled_after=60, stopping=lambda: False)
        assert health.ready().holds


def test_an_app_without_a_ledger_has_no_such_relay(tmp_path):
    with apps(broker="redis://nowhere:1/0", store="redis://nowhere:1/0") as make:
        app = make()
        with pytest.raises(ConfigurationError, match="no ledger is configured"):
            app.ops.open_act_relay()
