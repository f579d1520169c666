"""An SQS broker: its task queues, by the credentials and options that kombu would use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from angzarr.adapters.celery.doctor import visibility
from angzarr.doctor import sqs_rules
from angzarr.doctor.finding import Finding, Fix, Probe
from angzarr.doctor_probes import DoctorTarget
from angzarr.wiring import stores as wiring


def probes(target: DoctorTarget) -> Iterator[Probe]:
    """A probe of the broker, if it is SQS."""
    if not target.broker_url.startswith("sqs"):
        return
    doctor = wiring.adapter("angzarr.adapters.sqs.doctor", "boto3")
    client = wiring.adapter("angzarr.adapters.sqs.client", "boto3")
    at = _at(target)

    def look() -> Iterator[Finding]:
        seen = doctor.task_queues(
            _service(target),
            at,
            _wanted(target),
            ours=target.ours,
            visibility=visibility(target.app, "sqs"),
        )
        yield from sqs_rules.findings(seen)

    yield Probe(at=at, look=look, failures=client.FAILURES, reason=client.reason_of)


def create_queue(target: DoctorTarget, fix: Fix) -> str:
    """Create a task queue that is missing; raises what boto3 raises."""
    (name,) = fix.arguments
    (queue,) = (one for one in _wanted(target) if one.name == name)
    wiring.adapter("angzarr.adapters.sqs.doctor", "boto3").make_task_queue(_service(target), queue)
    return ""


def _wanted(target: DoctorTarget) -> list[Any]:
    """The task queues, two names of one only once."""
    given = target.app.conf.broker_transport_options or {}
    found = wiring.adapter("angzarr.adapters.sqs.doctor", "boto3").wanted(
        target.app.amqp.queues, given, visibility(target.app, "sqs")
    )
    return list({one.name: one for one in found}.values())


def _at(target: DoctorTarget) -> str:
    connection = target.app.connection_for_write()
    return f"SQS at {connection.hostname}:{connection.port}" if connection.hostname else "SQS"


def _service(target: DoctorTarget) -> Any:
    """The service that kombu's transport would connect to."""
    connection = target.app.connection_for_write()
    given = target.app.conf.broker_transport_options or {}
    login = {"aws_access_key_id": connection.userid, "aws_secret_access_key": connection.password}
    endpoint = None
    if connection.hostname:
        scheme = "https" if given.get("is_secure") else "http"
        port = f":{connection.port}" if connection.port else ""
        endpoint = f"{scheme}://{connection.hostname}{port}"
    return wiring.adapter("angzarr.adapters.sqs.client", "boto3").Service(
        region=wiring.adapter("angzarr.adapters.sqs.doctor", "boto3").region_of(given),
        endpoint_url=endpoint,
        profile=None,
        timeout=target.timeout.total_seconds(),
        options={name: value for name, value in login.items() if value},
    )
