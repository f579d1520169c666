"""Replaying: a group of dead letters in a ledger, a worker that handles them, analysis workers."""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.ledger.database import LedgerDatabase
from angzarr.adapters.sql.ledger.store import SqlLedger
from angzarr.adapters.sql.replay_jobs.store import SqlReplayJobs
from angzarr.analysis.ledger.entry import FailureClass
from angzarr.analysis.ledger.ledger import Decided, EntryFilter
from angzarr.analysis.ledger.transition import Action, EntryDecision
from angzarr.analysis.replay.job import JobPlan, JobStatus, ReplayJob, Selection
from angzarr.dead_letters.letter import DeadLetter, Reason, letter_id
from angzarr.events import headers as names
from angzarr.events.event import Event, Message
from harness import servers
from harness.figure import NotMeasured
from harness.private_redis import private_redis
from harness.worker import Worker

#: A job that does not go on for so long (s) never ends.
QUIET = 120.0
LOOK = 0.1
GROUP = "group"
_FILED = 500
_HOLD = EntryDecision(
    action=Action.HOLD, failure_class=FailureClass.CODE_DEFECT, evidence="measured"
)


class Account(NamedTuple):
    """What became of a group that was replayed under kills."""

    lost: int
    #: Runs of the handler beyond one for each entry.
    repeated: int
    kills: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A folder, servers of its own, and what lies in the ledger."""

    folder: Path
    environment: dict[str, str]
    ledger: SqlLedger
    jobs: SqlReplayJobs

    def file(self, count: int) -> None:
        """File a group of entries that are held."""
        for at in range(0, count, _FILED):
            letters = [letter_of(number) for number in range(at, min(at + _FILED, count))]
            entries = self.ledger.add_failed_events(letters)
            held = [Decided(entry_id=e.id, revision=e.revision, decision=_HOLD) for e in entries]
            self.ledger.decide(held, by="bench")

    def begin(self, plan: JobPlan) -> str:
        """Begin the replay of the group."""
        selection = Selection(wanted=EntryFilter(fingerprint=GROUP))
        return self.jobs.begin(selection, plan, by="bench").id

    def ended(self, job_id: str, *workers: Worker) -> ReplayJob:
        """Wait until a job does not run any more and nothing of it is under way."""
        seen, changed = -1, time.monotonic()
        while True:
            for worker in workers:
                worker.check()
            job = self.jobs.open_job(job_id)
            if job is None or time.monotonic() - changed > QUIET:
                msg = f"the job went no further: {job}"
                raise NotMeasured(msg)
            if job.status is not JobStatus.RUNNING and job.out == 0:
                return job
            if job.answered != seen:
                seen, changed = job.answered, time.monotonic()
            time.sleep(LOOK)

    def runs(self) -> Counter[int]:
        """Return how often each entry's event was handled."""
        path = self.folder / "runs"
        lines = path.read_text().splitlines() if path.exists() else []
        return Counter(json.loads(line)[0] for line in lines)

    @contextmanager
    def handling(self) -> Iterator[Worker]:
        """Run the worker that handles events."""
        command = [
            sys.executable, "-m", "celery", "-A", "workers.replay_app", "worker", "--pool",
            "threads", "--concurrency", "4", "--without-mingle", "--without-gossip",
        ]  # fmt: skip
        with self._process(command) as worker:
            yield worker

    @contextmanager
    def analysing(self) -> Iterator[Worker]:
        """Run an analysis worker."""
        command = [
            sys.executable, "-m", "angzarr", "-A", "workers.replay_app", "dlq", "analyze",
            "--domain", "pay",
        ]  # fmt: skip
        with self._process(command) as worker:
            yield worker

    @contextmanager
    def _process(self, command: list[str]) -> Iterator[Worker]:
        worker = Worker(command, self.environment, self.folder / f"log-{uuid.uuid4().hex}")
        try:
            yield worker
        finally:
            worker.kill()


@contextmanager
def site() -> Iterator[Site]:
    """Lend a broker, a ledger on PostgreSQL, queues on RabbitMQ and a folder, all empty."""
    with ExitStack() as doors:
        folder = doors.enter_context(tempfile.TemporaryDirectory(prefix="angzarr-bench-replay-"))
        broker = doors.enter_context(private_redis())
        ledger = doors.enter_context(servers.database())
        environment = {
            **os.environ,
            "ANGZARR_LEDGER": ledger,
            "BENCH_BROKER": broker,
            "BENCH_FOLDER": folder,
            "BENCH_LETTERS_AT": doors.enter_context(servers.virtual_host()),
        }
        database = LedgerDatabase(build_engine(ledger))
        doors.enter_context(closing(database))
        yield Site(
            folder=Path(folder),
            environment=environment,
            ledger=SqlLedger(database),
            jobs=SqlReplayJobs(database),
        )


def sent_before_it_halts(count: int, *, ill_from: int) -> ReplayJob:
    """Replay a group whose dependency is ill from run *ill_from* on; return the job as it ended."""
    with site() as at, at.handling() as worker, at.analysing() as analyst:
        (at.folder / "ill-from").write_text(str(ill_from))
        at.file(count)
        return at.ended(at.begin(replace(JobPlan(), rate=None)), worker, analyst)


def replay_under_fire(count: int, *, kills: int, seed: int) -> Account:
    """Replay a group and kill its analysis worker again and again; the last one is spared."""
    chance = random.Random(seed)
    with site() as at, at.handling() as worker:
        at.file(count)
        began = time.monotonic()
        job_id = at.begin(JobPlan(rate=None, in_flight=max(count // (2 * kills), 1)))
        for kill in range(kills):
            with at.analysing() as analyst:
                _wait_for(at, count * (kill + chance.random()) / (kills + 1), worker, analyst)
        with at.analysing() as analyst:
            job = at.ended(job_id, worker, analyst)
        runs = at.runs()
    lost = count - min(len(runs), job.handled)
    return Account(lost, runs.total() - len(runs), kills, time.monotonic() - began)


def _wait_for(at: Site, until: float, *workers: Worker) -> None:
    """Wait until so many runs were seen, and one more than there are."""
    until, deadline = max(until, at.runs().total() + 1), time.monotonic() + QUIET
    while at.runs().total() < until and time.monotonic() < deadline:
        for worker in workers:
            worker.check()
        time.sleep(LOOK)


def letter_of(number: int) -> DeadLetter:
    """Return the letter of one event of the group."""
    event_id, data = f"pay-{number}", {"n": number}
    headers: dict[str, Any] = {
        "lang": "py", "task": "bench.pay", "id": event_id, "root_id": event_id, "parent_id": None,
        "retries": 0, "eta": None, "expires": None, "timelimit": [None, None],
        names.EVENT_ID: event_id, names.EVENT_TYPE: "Paid",
    }  # fmt: skip
    embed = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    now = datetime.now(UTC)
    return DeadLetter(
        id=letter_id("pay", "bench.pay", event_id, 0),
        domain="pay",
        handler="bench.pay",
        reason=Reason.REFUSED,
        explanation="measured",
        message=Message(
            body=json.dumps([[data], {}, embed]).encode(),
            content_type="application/json",
            content_encoding="utf-8",
            headers=headers,
            queue="celery",
            properties={"correlation_id": event_id},
        ),
        event=Event(id=event_id, type="Paid", data=data, domain="pay"),
        attempts=1,
        last_attempt_at=now,
        sent_to_dlq_at=now,
        fingerprint=GROUP,
    )
