"""The peers by name, in the order of the table: ours, bare Celery, and the others.

Each runs at what its documentation gives two cores, with late acknowledgement where it has that;
logs warnings only; keeps no results; and runs a failed event again as soon as its own means allow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from harness import servers
from harness.guarantees import expect_all, expect_handbuilt

from peers.peer import OLDER, OWN, PEERS, RABBITMQ, REDIS, Command, Peer

#: Threads of one process.
THREADS = 8
#: The multiplier of our workers and Celery's: Celery's default for prefork, where more changes
#: little; enough elsewhere that nothing waits for a fetch.
PREFETCH = {"prefork": "4", "threads": "64", "solo": "64", "processes": "64"}
_CELERY_QUIET = ("-l", "WARNING", "--without-gossip", "--without-mingle", "--without-heartbeat")


def celery_workers(
    pool: str, concurrency: int, workers: int, app: str = "peers.apps.celery_app"
) -> list[Command]:
    """So many Celery workers of one pool."""
    return [
        ("celery", "-A", app, "worker", "-P", pool, "-c", str(concurrency), "-Q", "bench",
         "-n", f"bench{number}@%h", *_CELERY_QUIET)
        for number in range(workers)
    ]  # fmt: skip


def angzarr_worker(processes: int, *more: str) -> list[Command]:
    """One supervisor of so many whole consumers, with no pipe between them."""
    command = ("angzarr", "-A", ANGZARR_APP, "worker", "--processes", str(processes), *more)
    return [(*command, "-Q", "bench", *_CELERY_QUIET)]


@contextmanager
def _stored(broker: str, folder: Path) -> Iterator[Mapping[str, str]]:
    """A claim store, the broker itself if that is a Redis, and a place for dead letters."""
    with servers.virtual_host() as letters:
        dead_letters = {"ANGZARR_DLQ__BACKEND": "amqp", "ANGZARR_DLQ__AMQP_URL": letters}
        if broker.startswith("redis"):
            yield {"ANGZARR_STORE": broker, "ANGZARR_PREFIX": folder.name, **dead_letters}
            return
        with servers.redis_store() as store:
            yield {"ANGZARR_STORE": store.url, "ANGZARR_PREFIX": store.prefix, **dead_letters}


@contextmanager
def _remembered(broker: str, folder: Path) -> Iterator[Mapping[str, str]]:
    """A Redis for records and breakers, the broker itself if that is one."""
    if broker.startswith("redis"):
        yield {"BENCH_STORE": broker, "BENCH_STORE_PREFIX": folder.name}
        return
    with servers.redis_store() as store:
        yield {"BENCH_STORE": store.url, "BENCH_STORE_PREFIX": store.prefix}


def _recorded(log: str, environment: Mapping[str, str], events: int) -> None:
    del log
    store = servers.Store(environment["BENCH_STORE"], environment["BENCH_STORE_PREFIX"])
    expect_handbuilt(store, events)


def _guaranteed(log: str, environment: Mapping[str, str], events: int) -> None:
    store = servers.Store(environment["ANGZARR_STORE"], environment["ANGZARR_PREFIX"])
    expect_all(store, log, events)


ANGZARR_APP, CELERY_APP = "peers.apps.angzarr_app", "peers.apps.celery_app"
HANDBUILT_APP = "peers.apps.handbuilt_app"
BOTH = (REDIS, RABBITMQ)


def _ours(pool: str, commands: Callable[[int], list[Command]], settings: str) -> Peer:
    prefetch = PREFETCH[pool]
    return Peer(
        name=f"angzarr {pool}",
        distribution="angzarr-workers",
        home=OWN,
        app=ANGZARR_APP,
        commands=commands,
        brokers=BOTH,
        settings=f"{settings}, prefetch {prefetch}; all guarantees on; quorum queues on RabbitMQ",
        killed=(
            "comes back within 10 s, its start counted and the dead worker fenced off;"
            " dead-lettered at its fourth start"
        ),
        environment={"BENCH_PREFETCH": prefetch},
        place=_stored,
        check=_guaranteed,
    )


def _bare(pool: str, commands: Callable[[int], list[Command]], settings: str) -> Peer:
    prefetch = PREFETCH[pool]
    return Peer(
        name=f"Celery {pool}",
        distribution="celery",
        home=OWN,
        app=CELERY_APP,
        commands=commands,
        brokers=BOTH,
        settings=f"{settings}, prefetch {prefetch}; late ack; quorum queues on RabbitMQ",
        killed=(
            "Redis: comes back after the visibility timeout, an hour, and some are lost; RabbitMQ:"
            " at once, without end if it is what kills the worker"
        ),
        environment={"BENCH_PREFETCH": prefetch},
    )


_ALL = (
    _ours("processes", angzarr_worker, "`angzarr worker --processes 2`"),
    _ours(
        "threads", lambda n: angzarr_worker(n, "--threads", str(THREADS)),
        f"`angzarr worker --processes 2 --threads {THREADS}`",
    ),
    _ours(
        "prefork", lambda n: celery_workers("prefork", n, 1, ANGZARR_APP),
        "one worker, two children",
    ),
    _bare("solo", lambda n: celery_workers("solo", 1, n), "two solo workers"),
    _bare(
        "threads", lambda n: celery_workers("threads", THREADS, n),
        f"two workers of {THREADS} threads",
    ),
    _bare("prefork", lambda n: celery_workers("prefork", n, 1), "one worker, two children"),
    Peer(
        name="hand-built",
        distribution="aws-lambda-powertools",
        home=PEERS,
        app=HANDBUILT_APP,
        commands=lambda n: celery_workers("prefork", n, 1, HANDBUILT_APP),
        brokers=BOTH,
        settings=(
            "Celery and its retries, idempotency of Powertools (whose release it is) and pybreaker,"
            f" both on Redis; one worker, two children, prefetch {PREFETCH['prefork']}; late ack;"
            " quorum queues on RabbitMQ"
        ),
        killed=(
            "comes back as with bare Celery, finds its own record in progress and waits for that to"
            " end, here 30 s; nothing fences a worker that is only late"
        ),
        environment={"BENCH_PREFETCH": PREFETCH["prefork"]},
        place=_remembered,
        check=_recorded,
    ),
    Peer(
        name="Relier",
        distribution="relier",
        home=PEERS,
        app="peers.apps.relier_app",
        commands=lambda n: [
            ("celery", "-A", "relier.tasks.app", "worker", "-c", str(n),
             "-Q", "high_priority,default,low_priority,re-queue",
             "--include=peers.apps.relier_app", *_CELERY_QUIET),
            ("rl", "run-resurrector"),
        ],
        brokers=(REDIS,),
        settings=(
            "one worker, two prefork children and its resurrector; idempotent, hard time limit,"
            " late ack; its results kept, as its app is set up; its log at WARNING"
        ),
        killed="its resurrector queues it again some 7 s later; quarantined after 5 times",
        retries=False,
        environment={
            # Publishing ahead is not to be refused.
            "RELIER_ADMISSION_LIMIT": "1000000000",
            "RELIER_LOG_LEVEL": "WARNING",
        },
    ),
    Peer(
        name="dramatiq",
        distribution="dramatiq",
        home=PEERS,
        app="peers.apps.dramatiq_app",
        commands=lambda n: [
            ("dramatiq", "peers.apps.dramatiq_app", "-p", str(n), "-t", str(THREADS))
        ],
        brokers=BOTH,
        settings=f"2 processes of {THREADS} threads, its defaults; late ack; classic queues",
        killed="Redis: comes back after its heartbeat timeout, 60 s; RabbitMQ: at once",
    ),
    Peer(
        name="taskiq",
        distribution="taskiq",
        home=PEERS,
        app="peers.apps.taskiq_app",
        commands=lambda n: [
            ("taskiq", "worker", "peers.apps.taskiq_app:broker", "-w", str(n), "--ack-type",
             "when_executed", "--log-level", "WARNING")
        ],
        brokers=BOTH,
        settings=(
            "2 processes, 100 coroutines each, ack when executed; Redis streams; on RabbitMQ"
            " quorum queues, prefetch 100"
        ),
        killed=(
            "Redis: comes back after 10 min, and so does what runs for longer; RabbitMQ: at once"
        ),
    ),
    Peer(
        name="arq",
        distribution="arq",
        home=OLDER,
        app="peers.apps.arq_app",
        commands=lambda n: [
            ("arq", "peers.apps.arq_app.WorkerSettings", "--custom-log-dict",
             "peers.apps.arq_app.LOGGING")
        ] * n,
        brokers=(REDIS,),
        settings="2 processes, 100 jobs each, poll every 10 ms (its default: 500 ms)",
        killed="stays queued; runs again after its time limit and 10 s: 310 s",
    ),
    Peer(
        name="saq",
        distribution="saq",
        home=OLDER,
        app="peers.apps.saq_app",
        commands=lambda n: [("saq", "peers.apps.saq_app.settings", "--workers", str(n), "-q")],
        brokers=(REDIS,),
        settings="2 processes, 100 jobs each",
        killed="swept every minute and run again if it has retries left (none by default)",
    ),
    Peer(
        name="huey",
        distribution="huey",
        home=PEERS,
        app="peers.apps.huey_app",
        commands=lambda n: [
            ("huey_consumer", "peers.apps.huey_app.huey", "-k", "thread", "-w", str(THREADS),
             "-n", "-q")
        ] * n,
        brokers=(REDIS,),
        settings=f"2 consumers of {THREADS} threads; it takes a message out before it runs it",
        killed="lost",
    ),
    Peer(
        name="RQ",
        distribution="rq",
        home=PEERS,
        app="peers.apps.rq_app",
        commands=lambda n: [
            ("rq", "worker", "-w", "rq.worker.SimpleWorker", "-c", "peers.apps.rq_app", "-q")
        ] * n,
        brokers=(REDIS,),
        settings="2 simple workers, which fork no process for each job and so are its fastest",
        killed=(
            "noticed by its maintenance, every 10 min; run again if it has retries left, else"
            " failed"
        ),
    ),
)  # fmt: skip

CATALOGUE: Mapping[str, Peer] = {peer.name: peer for peer in _ALL}
#: The row whose figures are recorded.
OURS = _ALL[0]
