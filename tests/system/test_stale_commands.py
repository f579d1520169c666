"""Commands that were refused as stale, and compensations that failed, from a real worker's letter
to the end that a person gives them."""

from __future__ import annotations

import importlib
import json
import sys
import uuid
from contextlib import closing
from datetime import timedelta

import pytest
from click.testing import CliRunner

from angzarr.aggregates.command import Command
from angzarr.analysis.ledger.entry import FailureClass, Status
from angzarr.cli.main import main
from angzarr.dead_letters.letter import Reason
from angzarr.errors import CommandAbortedError
from angzarr.events.event import Event
from angzarr.wiring.analysis_worker import open_worker
from polling import wait_until
from system.conftest import Site


class MergeSite(Site):
    name = "merge_app"


@pytest.fixture
def make_merging(make_site, redis_url, postgresql_url, tmp_path):
    def make(**environment):
        return make_site(
            make=MergeSite,
            broker=redis_url,
            ANGZARR_BOOKS=postgresql_url,
            ANGZARR_LEDGER=f"sqlite:///{tmp_path}/ledger.db",
            **environment,
        )

    return make


@pytest.fixture
def site(make_merging):
    return make_merging()


@pytest.fixture
def angzarr():
    def run(*arguments, code=0):
        result = CliRunner().invoke(main, ["-A", "merge_app", *arguments])
        assert result.exit_code == code, result.output
        return result.output

    return run


def wait_entry(site, worker, status, but=""):
    """Let the analysis worker work until the one entry besides *but* is in *status*."""

    def found():
        worker.step(wait=timedelta(milliseconds=100))
        with closing(site.app.ops.open_ledger()) as ledger:
            page = ledger.get_failed_events(status=None)
        entries = [one for one in page.entries if one.id != but]
        assert len(entries) <= 1, [
            (one.handler_name, one.domain, one.reason, one.error_message) for one in entries
        ]
        return entries and entries[0].status is status and entries[0]

    return wait_until(found, f"an entry that is {status}")


def pieces(site):
    return [event.data["pieces"] for event in site.app.book(site.module.SHELF, "a1").events]


def counted(site, number):
    site.app.send_command(site.module.Count(pieces=number), domain=site.module.SHELF, root="a1")
    wait_until(lambda: number in pieces(site), f"{number} to be counted")


def sent(site):
    """A command of somebody who had not seen that another one counted, by the queue."""
    command = site.module.Count(pieces=2)
    site.app.send_command(command, domain=site.module.SHELF, root="a1", expected=0)


def executed(site):
    """The same, of a caller who waits for the answer."""
    event = Event(
        id=str(uuid.uuid4()), type="Count", data={"pieces": 2}, domain=site.module.SHELF,
        root="a1", sequence=0,
    )  # fmt: skip
    with pytest.raises(CommandAbortedError):
        site.app.execute(Command(event=event))


@pytest.mark.parametrize(("pool", "ask"), [("prefork", sent), ("threads", executed)])
def test_a_stale_command_is_held_and_carried_out_once_with_a_fresh_sequence(
    site, angzarr, pool, ask
):
    domain = site.module.SHELF
    with site.worker(pool=pool), open_worker(site.app.ops, [domain]) as worker:
        counted(site, 1)
        ask(site)
        entry = wait_entry(site, worker, Status.HELD)
        assert entry.failure_class is FailureClass.SEQUENCE_CONFLICT
        assert entry.reason == Reason.SEQUENCE_MISMATCH
        said = "expected sequence 0, the aggregate is at 1 (MANUAL)"
        assert entry.evidence.startswith(f"{said}: replay it with a fresh sequence")
        assert said in angzarr("dlq", "show", entry.id)
        shown = json.loads(angzarr("dlq", "show", entry.id, "--json"))
        assert shown["mismatch"] == {"expected": 0, "actual": 1, "strategy": "manual"}

        angzarr("dlq", "replay", entry.id, "--yes")  # as it is: it is stale again
        again = wait_entry(site, worker, Status.HELD)
        assert (again.replays, again.failure_class) == (1, FailureClass.SEQUENCE_CONFLICT)
        assert pieces(site) == [1]

        angzarr("dlq", "replay", entry.id, "--fresh-sequence", "--yes")
        resolved = wait_entry(site, worker, Status.RESOLVED)
        counted(site, 3)
    assert (resolved.replays, pieces(site)) == (2, [1, 2, 3])
    with closing(site.app.ops.open_ledger()) as ledger:
        story = [line.detail for line in ledger.open(entry.id).history]
    assert "replay 2 with a fresh sequence" in story


@pytest.fixture
def compensating(make_merging, kafka_brokers):
    """A site whose letters of failed compensations go to Kafka, and that queue's URL."""
    own = f"kafka://{kafka_brokers}"
    return make_merging(ANGZARR_SAGA_DLQ_URL=own), own


def fail_to_compensate(site):
    counted(site, 13)
    wait_until(lambda: "saga_escalated" in site.text(), "the compensation to fail")


def test_letters_of_failed_compensations_have_a_queue_and_are_filed_after_a_move(
    compensating, angzarr
):
    site, own = compensating
    domain = site.module.SHELF
    with site.worker(pool="solo"), open_worker(site.app.ops, [domain]) as worker:
        fail_to_compensate(site)
        sent(site)  # any other letter of that domain goes where all go
        first = wait_entry(site, worker, Status.HELD)
        assert first.reason == Reason.SEQUENCE_MISMATCH
        angzarr("dlq", "move", "--from", own, "--to", "app", "--domain", domain, "--yes")
        entry = wait_entry(site, worker, Status.HELD, but=first.id)
    assert entry.reason == Reason.COMPENSATION
    assert entry.failure_class is FailureClass.BUSINESS_REJECTION


def test_an_analysis_worker_of_their_own_files_letters_of_failed_compensations(
    compensating, kafka_brokers, monkeypatch
):
    site, _ = compensating
    with site.worker(pool="solo"):
        fail_to_compensate(site)
    monkeypatch.setenv("ANGZARR_DLQ__BACKEND", "kafka")
    monkeypatch.setenv("ANGZARR_DLQ__KAFKA_BROKERS", kafka_brokers)
    sys.modules.pop(site.name)
    with (
        closing(importlib.import_module(site.name).app) as app,
        open_worker(app.ops, [site.module.SHELF]) as worker,
    ):
        entry = wait_entry(site, worker, Status.HELD)
    assert entry.reason == Reason.COMPENSATION
