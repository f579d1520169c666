"""How much later than its time a retry runs, on each broker."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from statistics import median
from urllib.parse import urlsplit

from harness import servers
from harness.figure import Figure, Measured, NotMeasured
from harness.private_redis import private_redis
from harness.site import Side, Site, site
from harness.worker import Worker
from workers.journal import Journal

from figures.sides import load, pool_of

#: As in workers.late_angzarr, which is read by processes that have a site.
WAITS = (0.01, 0.05, 0.1, 0.15, 0.5, 1.0, 1.11, 2.5, 8.0, 30.0)
#: Waits of each length; fewer for a quick look while working on the code.
EACH = int(os.environ.get("BENCH_WAITS", "30"))
#: Seconds between two publications, so that a worker is nearly idle; a message on LocalStack costs
#: worker and server tens of milliseconds, so there are fewer there.
APART = {"redis": 0.13, "rabbitmq": 0.13, "sqs": 0.5}
ON_SQS = max(1, EACH * 2 // 5)
#: Longer than the longest wait and what is published before it.
PATIENCE = 120.0
#: SQS has no push: how often it is asked, and how long it may think.
POLLED = {"polling_interval": 0.1, "wait_time_seconds": 1, "region": "us-east-1"}


def measure() -> Measured:
    """Let events wait on each broker with one worker that has nothing else to do."""
    found = {}
    for kind in ("redis", "rabbitmq", "sqs"):
        with _broker(kind) as (broker, environment):
            environment["BENCH_APART"] = str(APART[kind])
            found[kind] = _lateness(broker, environment, ON_SQS if kind == "sqs" else EACH)
    return Measured(
        values=[max(map(max, late.values())) for late in found.values()],
        detail={
            **{f"s_{kind}": _told(late) for kind, late in found.items()},
            **{f"max_s_{kind}_by_wait": _by_wait(late) for kind, late in found.items()},
            "waits_each": f"{EACH}, on SQS {ON_SQS}",
            "broker": f"Redis {servers.redis_version()}, also the store; RabbitMQ"
            f" {servers.rabbitmq_version()} (quorum queue) and LocalStack's SQS beside a Redis",
            "pool": pool_of("prefork"),
        },
    )


def _told(late: Mapping[float, list[float]]) -> str:
    every = sorted(seconds for many in late.values() for seconds in many)
    p99 = every[min(len(every) - 1, round(0.99 * len(every)))]
    return f"median {median(every):.3f}, p99 {p99:.3f}, max {every[-1]:.3f}, min {every[0]:.3f}"


def _by_wait(late: Mapping[float, list[float]]) -> dict[str, float]:
    return {f"{wait:g}:": round(max(many), 3) for wait, many in late.items()}


@contextmanager
def _broker(kind: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Lend a broker and what an angzarr worker needs besides."""
    with private_redis() as redis, servers.virtual_host() as amqp:
        environment = {
            "ANGZARR_STORE": redis,
            "ANGZARR_DLQ__BACKEND": "amqp",
            "ANGZARR_DLQ__AMQP_URL": amqp,
        }
        if kind == "sqs":
            account = servers.aws_account()
            at = urlsplit(servers.address(servers.SQS))
            options = json.dumps({**POLLED, "is_secure": False})
            environment |= {**account, "BENCH_TRANSPORT_OPTIONS": options}
            login = f"{account['AWS_ACCESS_KEY_ID']}:{account['AWS_SECRET_ACCESS_KEY']}"
            yield f"sqs://{login}@{at.hostname}:{at.port}//", environment
        else:
            yield {"redis": redis, "rabbitmq": amqp}[kind], environment


def _lateness(broker: str, environment: dict[str, str], each: int) -> dict[float, list[float]]:
    """Return by wait how much later than it the second run of each event began (s)."""
    side = Side(app="workers.late_angzarr", environment=environment)
    events = each * len(WAITS)
    with site(side, load(broker, events=events, prefetch=1)) as at, at.worker() as worker:
        worker.wait_ready()
        journal = Journal(at.folder / "journal")
        at.run("workers.publish", side.app, str(events))
        _wait_for(at, worker, journal, 2 * events)
        moments: dict[int, list[float]] = {}
        for start in journal:
            moments.setdefault(start.number, []).append(start.moment)
    late: dict[float, list[float]] = {wait: [] for wait in WAITS}
    for number, (first, second, *_) in moments.items():
        wait = WAITS[-1 - number % len(WAITS)]
        late[wait].append(second - first - wait)
    return late


def _wait_for(at: Site, worker: Worker, journal: Journal, runs: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while len(journal) < runs:
        worker.check()
        if time.monotonic() > deadline:
            msg = f"{len(journal)} of {runs} runs of {at.load.queue}:\n{worker.log()[-2000:]}"
            raise NotMeasured(msg)
        time.sleep(0.1)


FIGURES = (
    Figure(
        key="delay_lateness_s",
        title="from a retry's time to its run, idle worker",
        unit="s",
        aim="≤ 1 s",
        worst=True,
        against="nothing: bare Celery keeps what waits in a worker's memory",
        how=(
            "A handler asks to come again after 10 ms to 30 s (`RetryLater`); its next start is"
            " compared with its first plus that wait, which leaves in how long settling takes."
            " Eight events a second are published, on SQS two, so that the worker is nearly idle."
            " On RabbitMQ what waits for a second or more waits there, in whole seconds. SQS is"
            " asked every 0.1 s. The latest run of all counts."
        ),
        measure=measure,
    ),
)
