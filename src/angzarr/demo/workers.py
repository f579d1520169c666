"""The workers of a demo run and its servers: started, checked, and cleaned up."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, NoReturn, Protocol

from celery import Celery

from angzarr.adapters.celery.worker.runtime import runtime_of
from angzarr.dead_letters.names import queue_name
from angzarr.demo.run import Run
from angzarr.errors import AngzarrError, ConfigurationError
from angzarr.settings.dead_letters import DeadLetterSettings
from angzarr.settings.dlq_urls import QUEUE_FORMS, QUEUE_SCHEMES, read_url
from angzarr.wiring import dead_letters as letter_wiring
from angzarr.wiring import stores as wiring
from angzarr.wiring.analysis_worker import open_worker

#: Threads of the embedded worker, child processes of a real one.
THREADS: Final = 8
PROCESSES: Final = 4
#: Seconds that a stopped worker may take before it is killed; all its work is done by then.
PATIENCE: Final = 15
#: The app as real workers are given it.
_APP: Final = "angzarr.demo.app"


class WorkerDied(AngzarrError):
    """A worker of the demo ended before its work did."""


class DemoFleet(Protocol):
    """What handles and analyses the events."""

    def start(self) -> None:
        """Start everything; raises ConfigurationError where it cannot work."""

    def check(self) -> None:
        """Raise WorkerDied if something ended by itself."""

    def kill(self) -> None:
        """Kill the worker in the middle of whatever it does, and start another one."""

    def stop(self) -> None:
        """Stop everything; safe to call twice."""


class EmbeddedFleet:
    """A worker with a pool of threads and an analysis worker, both in threads of this process."""

    def __init__(self, app: Celery, run: Run) -> None:
        self._app = app
        self._run = run
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._errors: list[Exception] = []

    def start(self) -> None:
        """Build both here, where an error is heard, and run them in threads."""
        from celery.platforms import SecurityWarning

        _log_to(self._run)
        warnings.simplefilter("ignore", SecurityWarning)  # root in a container tries this out
        worker = self._app.Worker(
            hostname=f"{self._run.name}@embedded",
            pool="threads",
            concurrency=THREADS,
            queues=[self._run.name],
            loglevel="WARNING",
            quiet=True,
            without_heartbeat=True,
            without_mingle=True,
            without_gossip=True,
        )
        for name, work in (("worker", worker.start), ("analysis", self._analyse)):
            thread = threading.Thread(target=work, name=f"demo-{name}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def _analyse(self) -> None:
        try:
            with open_worker(self._app.ops, self._app.ops.dead_letter_domains()) as worker:
                worker.run(self._stop)
        except Exception as error:  # noqa: BLE001 - told by the thread that watches
            self._errors.append(error)

    def check(self) -> None:
        """Raise WorkerDied if a thread ended."""
        for thread in self._threads:
            if not thread.is_alive():
                msg = f"{thread.name} ended: {self._errors or self._run.path / 'worker.log'}"
                raise WorkerDied(msg)

    def kill(self) -> NoReturn:
        """Refuse: it would be the demo itself."""
        msg = "a worker in the demo's own process cannot be killed"
        raise ConfigurationError(msg)

    def stop(self) -> None:
        """Let the worker's own loop stop it, as a signal would."""
        from celery.worker import state

        if not self._threads:
            return
        self._stop.set()
        state.should_stop = os.EX_OK
        for thread in self._threads:
            thread.join(PATIENCE)
        state.should_stop = None
        self._threads = []
        runtime_of(self._app).end_work()


class ProcessFleet:
    """A Celery worker with child processes and `angzarr dlq analyze`, as a user starts them."""

    def __init__(self, run: Run, environment: Mapping[str, str]) -> None:
        self._run = run
        self._environment = dict(environment)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start both; what they say goes into files in the run's folder."""
        self._start_worker()
        self._spawn("analysis", "angzarr", "-A", _APP, "dlq", "analyze")

    def _start_worker(self) -> None:
        self._spawn(
            "worker", "celery", "-A", _APP, "--quiet", "worker", "--pool", "prefork",
            "--concurrency", str(PROCESSES), "--queues", self._run.name,
            "--hostname", f"{self._run.name}@%h", "--loglevel", "WARNING",
            "--without-heartbeat", "--without-mingle", "--without-gossip",
        )  # fmt: skip

    def _spawn(self, name: str, module: str, *arguments: str) -> None:
        with (self._run.path / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-m", module, *arguments],
                env=self._environment,
                cwd=self._run.path,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the demo, which stops them
            )

    def check(self) -> None:
        """Raise WorkerDied with the last words of a process that ended."""
        for name, process in self._processes.items():
            if process.poll() is not None:
                log = self._run.path / f"{name}.log"
                said = log.read_text(errors="replace").strip().splitlines()[-1:] or ["nothing"]
                msg = (
                    f"the {name} process ended with {process.returncode}: {said[0]} (more in {log})"
                )
                raise WorkerDied(msg)

    def kill(self) -> None:
        """Kill the worker with its children, as the kernel does when memory is short."""
        _kill(self._processes["worker"])
        self._start_worker()

    def stop(self) -> None:
        """Ask both to end, then insist."""
        for process in self._processes.values():
            with suppress(ProcessLookupError):
                process.terminate()
        for process in self._processes.values():
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                _kill(process)
        self._processes = {}


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process with its children: they share a session of their own."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, 9)
    process.wait()


def _log_to(run: Run) -> None:
    """Send all log lines into a file: the terminal belongs to the table."""
    root = logging.getLogger()
    root.handlers[:] = [logging.FileHandler(run.path / "worker.log", encoding="utf-8")]
    root.setLevel(logging.WARNING)


_log = logging.getLogger("angzarr.demo")


def dead_letter_settings(url: str | None) -> dict[str, Any]:
    """The settings that *url* stands for; None leaves it to the broker.

    Raises ConfigurationError, listing the possible queues, where it names none.
    """
    if url is None:
        return {}
    if url == "channel":
        return {"backend": "channel"}
    if url.partition("://")[0] not in QUEUE_SCHEMES:  # what was named instead may be a secret
        msg = f"the demo cannot use the dead-letter queue of --dlq: use channel, {QUEUE_FORMS}"
        raise ConfigurationError(msg)
    place = read_url(url)
    return {"backend": place.backend, **place.given}


def check(app: Celery) -> None:
    """Raise one clear error if a server that the run needs does not answer."""
    _check_broker(app)
    wiring.open_claims(app.settings, app.ops.broker_url).leases.renew(
        f"{app.run.name}-start", timedelta(seconds=1)
    )
    letters = app.ops.open_dead_letter_queue()
    try:
        letters.receive(app.ops.dead_letter_domains(), limit=1, wait=timedelta(0))
    finally:
        letters.close()
    ledger = app.ops.open_ledger()
    try:
        ledger.get_failure_stats()
    finally:
        ledger.close()


def _check_broker(app: Celery) -> None:
    from kombu.utils.url import maybe_sanitize_url

    connection = app.connection_for_write()
    try:
        connection.ensure_connection(max_retries=1, interval_start=0.2, timeout=5)
    except Exception as error:
        where = maybe_sanitize_url(app.ops.broker_url)
        msg = f"the broker at {where} does not answer ({error}); start it, or name another"
        raise ConfigurationError(msg) from error
    finally:
        connection.release()


def clean(app: Celery) -> None:
    """Remove the run's queues, topics and keys; what cannot be removed is logged and left."""
    run: Run = app.run
    if run.embedded and app.settings.dlq.backend in (None, "channel"):
        return
    domains = app.ops.dead_letter_domains()
    places = letter_wiring.places(app.settings, app.ops.broker_url)
    letters = [_letters_cleaner(app, place, domains) for place in places]
    for step in (_broker_cleaner(app), _store_cleaner(app), *letters):
        try:
            step()
        except Exception as error:  # noqa: BLE001 - the run is over, its result stands
            _log.warning("demo_not_removed: something of %s was left behind: %s", run.name, error)


def _nothing() -> None:
    """Remove nothing: there is nothing, or it ends by itself."""


def _broker_cleaner(app: Celery) -> Callable[[], None]:
    if app.ops.broker_url.startswith(("redis", "rediss")):
        return lambda: _unlink(app.ops.broker_url, app.run.name)
    if wiring.is_amqp(app.ops.broker_url):
        queues = [app.run.name, f"{app.run.name}-outcomes"]
        return lambda: _delete_amqp(app.ops.broker_url, queues, exchanges=queues)
    return _nothing


def _store_cleaner(app: Celery) -> Callable[[], None]:
    store = wiring.store_url(app.settings, app.ops.broker_url)
    if store.startswith(("redis", "rediss")):
        return lambda: _unlink(store, app.run.name)
    return _nothing


def _letters_cleaner(app: Celery, place: str, domains: Sequence[str]) -> Callable[[], None]:
    given = app.settings.dlq
    names = [queue_name(domain) for domain in domains]
    match place:
        case "kafka":
            return lambda: _delete_topics(given.kafka_brokers, names)
        case "sqs" | "sns_sqs":
            return lambda: _delete_aws(given, domains, topics=place == "sns_sqs")
        case "pubsub":
            return lambda: _delete_pubsub(given.pubsub_project, names)
        case "amqp":
            return lambda: _delete_amqp(given.amqp_url or app.ops.broker_url, names)
        case _:
            return _nothing


def _unlink(url: str, prefix: str) -> None:
    import redis

    with redis.Redis.from_url(url) as client:
        if keys := list(client.scan_iter(f"*{prefix}*", count=1000)):
            client.unlink(*keys)


def _delete_amqp(url: str, queues: Sequence[str], exchanges: Sequence[str] = ()) -> None:
    from kombu import Connection

    with Connection(url) as connection:
        for name in queues:
            with suppress(connection.channel_errors):  # it closes the channel where it is missing
                connection.channel().queue_delete(name)
        for name in exchanges:
            with suppress(connection.channel_errors):
                connection.channel().exchange_delete(name)


def _delete_topics(brokers: str, names: Sequence[str]) -> None:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": brokers})
    for future in admin.delete_topics(list(names)).values():
        with suppress(Exception):  # a topic without letters was never made
            future.result(timeout=10)


def _delete_aws(given: DeadLetterSettings, domains: Sequence[str], *, topics: bool) -> None:
    """Delete queues and, with *topics*, the topics of their names with their subscriptions."""
    import boto3

    from angzarr.adapters.sqs.fan_out import topic_beside
    from angzarr.adapters.sqs.queues import FIFO_SUFFIX

    session = boto3.Session(profile_name=given.aws_profile, region_name=given.aws_region)
    sqs = session.client("sqs", endpoint_url=given.aws_endpoint_url)
    sns = session.client("sns", endpoint_url=given.aws_endpoint_url)
    for domain in domains:
        name = queue_name(domain, FIFO_SUFFIX if given.aws_fifo else "")
        with suppress(sqs.exceptions.QueueDoesNotExist):
            url = sqs.get_queue_url(QueueName=name)["QueueUrl"]
            if topics:
                told = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
                sns.delete_topic(TopicArn=topic_beside(told["Attributes"]["QueueArn"]))
            sqs.delete_queue(QueueUrl=url)


def _delete_pubsub(project: str, names: Sequence[str]) -> None:
    from google.api_core.exceptions import NotFound
    from google.cloud.pubsub_v1 import PublisherClient, SubscriberClient

    with PublisherClient() as publisher, SubscriberClient() as subscriber:
        for name in names:
            with suppress(NotFound):
                path = subscriber.subscription_path(project, name)
                subscriber.delete_subscription(subscription=path)
            with suppress(NotFound):
                publisher.delete_topic(topic=publisher.topic_path(project, name))
