"""Intakes: letters from Kafka into PostgreSQL, by the analysis worker's duty and by hand."""

from __future__ import annotations

import os
import random
import time
import uuid
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from typing import Any

import confluent_kafka
import psycopg

from angzarr.adapters.kafka.dead_letters import KafkaDeadLetterQueue
from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.ledger.database import LedgerDatabase
from angzarr.adapters.sql.ledger.groups import SqlPeers
from angzarr.adapters.sql.ledger.store import SqlLedger
from angzarr.adapters.sql.replay_jobs.store import SqlReplayJobs
from angzarr.analysis.classification.classify import Classifier, ReplayDelays, Unattended
from angzarr.analysis.classification.evidence_collector import EvidenceCollector
from angzarr.analysis.classification.rules import built_in_rules, in_order
from angzarr.analysis.replay.replay import Replayer, ReplayTargets
from angzarr.analysis.worker.decisions import DecisionMaker
from angzarr.analysis.worker.intake import LETTERS, Intake
from angzarr.clock import SystemClock
from angzarr.dead_letters.names import queue_name
from angzarr.dead_letters.protection import Clearance
from angzarr.dead_letters.queue import DeadLetterQueue
from angzarr.settings.analysis import AnalysisSettings
from harness import servers
from harness.figure import NotMeasured
from harness.letter_rates import PATIENCE


def intake(queue: DeadLetterQueue, database: LedgerDatabase, domain: str) -> Intake:
    """Return the duty as `angzarr dlq analyze` wires it, without a broker to replay to."""
    clock = SystemClock()
    ledger = SqlLedger(database, clock)
    targets = ReplayTargets(tasks={"shop.sync"}, queues={"orders"}, clear=Clearance())
    replayer = Replayer(
        ledger=ledger,
        publisher=_Nowhere(),
        targets=targets,
        clock=clock,
        answer_deadline=timedelta(hours=1),
        payloads=None,
    )
    classify = Classifier(
        rules=in_order((), (), built_in_rules()),
        pauses=ReplayDelays(backoff=AnalysisSettings().replay_backoff(), chance=random.random),
        max_replays=3,
        longest_wait=timedelta(days=1),
        unattended=Unattended(oldest=timedelta(days=30)),
    )
    gathering = EvidenceCollector(peers=SqlPeers(database), obstacle=replayer.obstacle, clock=clock)
    deciding = DecisionMaker(
        ledger=ledger, gathering=gathering, classify=classify, name=f"analysis@bench-{os.getpid()}",
        owners=SqlReplayJobs(database, clock).owners,
    )  # fmt: skip
    return Intake(queue=queue, deciding=deciding, clock=clock, domains=[domain])


def filed_by_ours(domain: str, letters: int) -> float:
    """Return letters per second that the duty files, decides and lets go."""
    brokers = servers.address(servers.KAFKA)
    group = f"bench-{uuid.uuid4()}"
    with servers.database() as url, closing(KafkaDeadLetterQueue(brokers, group=group)) as queue:
        engine = build_engine(url)
        duty = intake(queue, LedgerDatabase(engine), domain)
        try:
            return _drained(lambda: duty.turn(timedelta(seconds=5)), letters)
        finally:
            engine.dispose()


def stored_by_hand(domain: str, letters: int) -> float:
    """Return the same of a consumer that inserts (id, body) in bulk and commits its offsets."""
    consumer = confluent_kafka.Consumer({
        "bootstrap.servers": servers.address(servers.KAFKA), "group.id": f"bare-{uuid.uuid4()}",
        "auto.offset.reset": "earliest", "enable.auto.commit": False,
    })  # fmt: skip
    consumer.subscribe([queue_name(domain)])
    with (
        servers.database() as url,
        closing(consumer),
        psycopg.connect(url.replace("postgresql+psycopg", "postgresql")) as connection,
    ):
        connection.execute("CREATE TABLE letters (id text PRIMARY KEY, body bytea NOT NULL)")
        connection.commit()
        return _drained(lambda: _store(consumer, connection), letters)


def _store(consumer: Any, connection: psycopg.Connection[Any]) -> int:
    messages = consumer.consume(LETTERS, timeout=0.5)
    if not messages:
        return 0
    rows = [(f"{m.partition()}-{m.offset()}", m.value()) for m in messages]
    with connection.cursor() as cursor:
        cursor.executemany("INSERT INTO letters VALUES (%s, %s)", rows)
    connection.commit()
    consumer.commit(asynchronous=False)
    return len(messages)


def _drained(take: Callable[[], int], letters: int) -> float:
    """Return the rate after the first batch, for which both connect and join their group."""
    deadline, first = time.monotonic() + PATIENCE, 0
    while not first:
        first = take()
        _look_at(deadline)
    began, taken = time.perf_counter(), first
    while taken < letters:
        taken += take()
        _look_at(deadline)
    return (letters - first) / (time.perf_counter() - began)


def _look_at(deadline: float) -> None:
    if time.monotonic() > deadline + PATIENCE:
        msg = f"the letters did not come within {2 * PATIENCE:g} s"
        raise NotMeasured(msg)


class _Nowhere:
    def publish(self, message: Any) -> None:  # noqa: ARG002 - the port's signature
        raise AssertionError("nothing is replayed here")
