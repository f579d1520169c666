"""What the harness tells a worker, and the Celery settings that both sides of a pair share."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from celery import signals

BROKER = os.environ["BENCH_BROKER"]
QUEUE = os.environ["BENCH_QUEUE"]
#: Where handlers write their moments and workers that they are ready.
FOLDER = Path(os.environ["BENCH_FOLDER"])

#: The harness says the same to both sides; Celery's own default is 4, angzarr's is 1.
PREFETCH = int(os.environ["BENCH_PREFETCH"])

#: Below a supervisor this module is loaded by a fork server, its child, and shared by processes.
if os.environ.get("BENCH_SUPERVISED"):
    os.environ["BENCH_GROUP"] = str(os.getppid())

SHARED: dict[str, Any] = {
    "task_default_queue": QUEUE,
    "task_ignore_result": True,
    "worker_prefetch_multiplier": PREFETCH,
    "worker_enable_remote_control": False,
    "broker_connection_retry_on_startup": True,
    "broker_transport_options": json.loads(os.environ.get("BENCH_TRANSPORT_OPTIONS", "{}")),
}
if BROKER.startswith("amqp"):
    SHARED["task_default_queue_type"] = "quorum"
    SHARED["task_default_exchange_type"] = "topic"
    # Publishing ahead is not measured; the worker confirms.
    SHARED["broker_transport_options"]["confirm_publish"] = "BENCH_UNCONFIRMED" not in os.environ
if "BENCH_TRANSPORT" in os.environ:
    SHARED["broker_transport"] = os.environ["BENCH_TRANSPORT"]


@signals.worker_ready.connect(weak=False)
def tell(**_signal: Any) -> None:
    """Leave a file with this worker's pid in its name once it, or a process of it, consumes."""
    (FOLDER / f"ready-{os.environ.get('BENCH_GROUP', os.getpid())}").touch()


def body(number: int) -> dict[str, Any]:
    """Return the event that both sides send."""
    return {"number": number, "order_id": f"o-{number}", "total": "9.90", "currency": "EUR"}
