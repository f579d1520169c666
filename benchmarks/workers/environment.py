"""What the harness tells a worker, and the Celery settings that both sides of a pair share."""

from __future__ import annotations

import os
from typing import Any

from workers.stamps import Stamps

BROKER = os.environ["BENCH_BROKER"]
QUEUE = os.environ["BENCH_QUEUE"]
STAMPS = Stamps(os.environ["BENCH_STAMPS"])

#: Celery's own default, the same for both sides; angzarr's is 1.
PREFETCH = int(os.environ.get("BENCH_PREFETCH", "4"))

SHARED: dict[str, Any] = {
    "task_default_queue": QUEUE,
    "task_default_queue_type": "quorum",
    "task_default_exchange_type": "topic",
    "task_ignore_result": True,
    "worker_prefetch_multiplier": PREFETCH,
    "worker_enable_remote_control": False,
    "broker_connection_retry_on_startup": True,
    # Publishing ahead is not measured; the worker confirms.
    "broker_transport_options": {"confirm_publish": "BENCH_UNCONFIRMED" not in os.environ},
}


def body(number: int) -> dict[str, Any]:
    """Return the event that both sides send."""
    return {"number": number, "order_id": f"o-{number}", "total": "9.90", "currency": "EUR"}
