"""An SQS broker: its task queues, by the credentials and options that kombu would use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from angzarr.adapters.celery.doctor import visibility
from angzarr.doctor import sqs_rules
from angzarr.doctor.finding import Finding, Fix, Probe
from angzarr.doctor_probes import Target
from angzarr.wiring import stores as wiring


def probes(patient: Target) -> Iterator[Probe]:
    """Return a look at the broker, if it is SQS."""
    if not patient.broker_url.startswith("sqs"):
        return
    examination = wiring.adapter("angzarr.adapters.sqs.doctor", "boto3")
    client = wiring.adapter("angzarr.adapters.sqs.client", "boto3")
    at = _at(patient)

    def look() -> Iterator[Finding]:
        seen = examination.task_queues(
            _service(patient),
            at,
            _wanted(patient),
            ours=patient.ours,
            visibility=visibility(patient.app, "sqs"),
        )
        yield from sqs_rules.findings(seen)

    yield Probe(at=at, look=look, failures=client.FAILURES, reason=client.reason_of)


def create_queue(patient: Target, fix: Fix) -> str:
    """Create a task queue that is missing; raises what boto3 raises."""
    (name,) = fix.arguments
    (queue,) = (one for one in _wanted(patient) if one.name == name)
    wiring.adapter("angzarr.adapters.sqs.doctor", "boto3").make_task_queue(_service(patient), queue)
    return ""


def _wanted(patient: Target) -> list[Any]:
    """Return the task queues, two names of one only once."""
    given = patient.app.conf.broker_transport_options or {}
    found = wiring.adapter("angzarr.adapters.sqs.doctor", "boto3").wanted(
        patient.app.amqp.queues, given, visibility(patient.app, "sqs")
    )
    return list({one.name: one for one in found}.values())


def _at(patient: Target) -> str:
    connection = patient.app.connection_for_write()
    return f"SQS at {connection.hostname}:{connection.port}" if connection.hostname else "SQS"


def _service(patient: Target) -> Any:
    """Return what kombu's transport would connect to."""
    connection = patient.app.connection_for_write()
    given = patient.app.conf.broker_transport_options or {}
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
        timeout=patient.timeout.total_seconds(),
        options={name: value for name, value in login.items() if value},
    )
