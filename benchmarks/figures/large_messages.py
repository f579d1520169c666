"""A worker's memory while large bodies pass by way of a broker that takes none of them."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from harness import servers
from harness.figure import Figure, Measured, NotMeasured
from harness.private_redis import private_redis
from harness.site import Side, Site, site
from harness.worker import Worker

from figures.sides import load, pool_of

MIB = 2**20
#: Of each body; SQS takes 1 MiB.
SIZE = 5 * MIB
#: Of all bodies; less for a quick look, and the report tells how much it was.
TOTAL = int(os.environ.get("BENCH_LARGE_MIB", "1024")) * MIB
#: On their way at a time.
AT_ONCE = 20
PATIENCE = 1800.0
OPTIONS = {
    "region": "us-east-1",
    "is_secure": False,
    "polling_interval": 0.1,
    "wait_time_seconds": 1,
}


def measure() -> Measured:
    """Send the bodies through SQS, with a folder as the payload store."""
    events, folder = TOTAL // SIZE, Path(tempfile.mkdtemp(prefix="angzarr-payloads-"))
    address = urlsplit(servers.address("ANGZARR_TEST_SQS_ENDPOINT")).netloc
    keys = servers.aws_account()
    broker = f"sqs://{keys['AWS_ACCESS_KEY_ID']}:{keys['AWS_SECRET_ACCESS_KEY']}@{address}"
    try:
        with private_redis() as redis:
            environment = {
                **keys,
                "ANGZARR_STORE": redis,
                "ANGZARR_DLQ__BACKEND": "sqs",
                "ANGZARR_DLQ__AWS_ENDPOINT_URL": f"http://{address}",
                "ANGZARR_PAYLOADS__URL": folder.as_uri(),
                "BENCH_TRANSPORT_OPTIONS": json.dumps(OPTIONS),
                "BENCH_LARGE_BYTES": str(SIZE),
            }
            side = Side(app="workers.large_angzarr", environment=environment)
            with site(side, load(broker, events=events)) as at:
                return _measured(at, events, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measured(at: Site, events: int, folder: Path) -> Measured:
    worker = at.start()
    try:
        worker.wait_ready()
        idle = worker.pss_mib()
        began = time.monotonic()
        pss, rss = _pass(at, worker, events)
        took = time.monotonic() - began
    finally:
        worker.stop()
    stored = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return Measured(
        values=[pss],
        detail={
            "bodies": f"{events} of {SIZE / MIB:g} MiB, {events * SIZE / MIB:g} MiB in all",
            "MiB in the store": round(stored / MIB),
            "MiB before the first": round(idle),
            "MiB at most, shared pages in each process": round(rss),
            "s from the first publish to the last handled": round(took, 1),
            "broker": "SQS (LocalStack)",
            "payload store": "a folder, with fsync; packed by Zstandard",
            "pool": pool_of("prefork"),
        },
    )


def _pass(at: Site, worker: Worker, events: int) -> tuple[float, float]:
    """Publish *events*; return the most memory that the worker had meanwhile (MiB)."""
    with _watched(worker) as most:
        for begin in range(0, events, AT_ONCE):
            number = min(AT_ONCE, events - begin)
            at.run("workers.publish", at.side.app, str(number), str(begin))
            _wait(at, worker, begin + number)
    return most[0], most[1]


@contextmanager
def _watched(worker: Worker) -> Iterator[list[float]]:
    """Note the most memory that *worker* has, each shared page once and in each process (MiB)."""
    most, done = [0.0, 0.0], threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            most[:] = max(most[0], worker.pss_mib()), max(most[1], worker.rss_mib())

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield most
    finally:
        done.set()
        watching.join()


def _wait(at: Site, worker: Worker, done: int) -> None:
    """Return once *done* events were handled."""
    deadline = time.monotonic() + PATIENCE
    while len(list(at.folder.glob("done-*"))) < done:
        worker.check()
        if time.monotonic() > deadline:
            msg = f"not all of {done} large events were handled:\n{worker.log()[-2000:]}"
            raise NotMeasured(msg)
        time.sleep(0.05)


FIGURES = (
    Figure(
        key="large_messages_mib",
        title="a worker's memory while 1 GiB of bodies of 5 MiB pass",
        unit="MiB",
        aim="≤ 400 MiB",
        worst=True,
        against="nothing: the broker refuses such bodies",
        how=(
            "Events of 5 MiB are published through SQS, which takes 1 MiB, to a worker with two"
            " prefork children; twenty are on their way at a time. The most that the proportional"
            " set size of all its processes is. Half of each body can be packed away."
        ),
        measure=measure,
    ),
)
