"""Modules that each process of a worker would import, imported once before the processes fork.

The memory of a module that is imported after the fork is each process's own.
"""

from __future__ import annotations

import importlib
from contextlib import suppress
from typing import Final

from angzarr.settings.settings import Settings
from angzarr.wiring.stores import store_url

#: What a process imports anyway: here it is imported once for all.
_SHARED: Final = (
    "celery.bin.celery", "celery.apps.worker", "celery.worker.components", "celery.worker.consumer",
    "celery.app.events", "kombu.pidbox", "angzarr.adapters.celery.shutdown.shutdown",
    "angzarr.adapters.celery.worker.consumer", "angzarr.adapters.celery.worker.request",
    "angzarr.adapters.celery.worker.limited_pools", "angzarr.adapters.celery.worker.strategy",
    "angzarr.adapters.memory.facts", "angzarr.adapters.structlog.hook",
    "angzarr.adapters.structlog.own_lines",
)  # fmt: skip
#: What a process imports for each server that it uses, by how the server's URLs begin.
_SERVERS: Final = {
    "redis": (
        "angzarr.adapters.redis.transport", "angzarr.adapters.redis.idempotency",
        "angzarr.adapters.redis.breaker", "angzarr.adapters.redis.budget",
        "angzarr.adapters.redis.limit", "angzarr.adapters.redis.flow_line",
        "angzarr.adapters.redis.switches", "angzarr.adapters.redis.schedule",
        "angzarr.adapters.redis.fleet",
    ),
    "amqp": ("angzarr.adapters.rabbitmq.transport", "angzarr.adapters.rabbitmq.dead_letters"),
    "sqs": ("angzarr.adapters.sqs.transport", "angzarr.adapters.sqs.dead_letters"),
    "kafka": ("angzarr.adapters.kafka.dead_letters",),
    "postgresql": (
        "angzarr.adapters.sql.delivery.idempotency", "angzarr.adapters.sql.facts.log",
        "sqlalchemy.dialects.postgresql.psycopg",
    ),
    "sqlite": ("angzarr.adapters.sql.delivery.idempotency", "sqlalchemy.dialects.sqlite"),
}  # fmt: skip
_MEASURING: Final = (
    "angzarr.adapters.opentelemetry.letter_meters", "angzarr.adapters.opentelemetry.meters",
    "angzarr.adapters.opentelemetry.traces", "angzarr.adapters.prometheus.folder",
)  # fmt: skip


def import_shared(settings: Settings, broker_url: str) -> None:
    """Import what every process of a worker with these *settings* would."""
    for module in _SHARED:
        importlib.import_module(module)
    used = f"{broker_url} {store_url(settings, broker_url)} {settings.dlq.backend}"
    found = (modules for server, modules in _SERVERS.items() if server in used)
    for module in (*_MEASURING, *(one for modules in found for one in modules)):
        with suppress(ImportError):  # an extra is missing; a process that needs it says so
            importlib.import_module(module)
