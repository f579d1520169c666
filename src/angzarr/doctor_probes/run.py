"""One run of the doctor: every probe at once within a bounded time, and the fixes.

A probe that cannot be set up is a finding of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Final

from angzarr.adapters.celery import doctor
from angzarr.doctor import (
    celery_rules,
    finding,
    letter_rules,
    rabbitmq_rules,
    redis_rules,
    refusal_rules,
    sqs_rules,
)
from angzarr.doctor.finding import Finding, Fix, Probe, look_at_all, refusing
from angzarr.doctor.report import DoctorReport, chosen
from angzarr.doctor_probes import (
    DoctorTarget,
    databases,
    fleet,
    letters,
    payloads,
    rabbitmq,
    redis,
    sqs,
)
from angzarr.errors import ConfigurationError
from angzarr.wiring import startup_checks as checks
from angzarr.wiring.ledger import ledger_url
from angzarr.wiring.stores import is_amqp


def app_findings(target: DoctorTarget) -> Iterator[Finding]:
    """The losses that the settings of *target* cause, and what a worker would refuse."""
    app, at = target.app, target.at
    seen = doctor.celery_seen(app, at, ours=target.ours)
    yield from refusal_rules.findings(seen)
    yield from celery_rules.findings(seen)
    yield from celery_rules.time_findings(
        doctor.times_seen(
            app,
            at,
            ours=target.ours,
            grace=target.grace,
            longest_delay=target.longest_delay,
        )
    )
    if not target.ours:
        yield from refusal_rules.stock_findings(doctor.stock_seen(app, at))
        return
    for check in _refusals(target):
        yield from refusing(check, at)
    if ledger_url(target.settings, target.broker_url) is None:
        yield letter_rules.ledger(at)


def _refusals(target: DoctorTarget) -> tuple[Callable[[], object], ...]:
    """The checks without a server that a worker, or the analysis worker, makes at start."""
    ops = target.ops
    return (
        lambda: checks.check_configured(target.settings, target.broker_url),
        ops.check_escalations,
        ops.check_books,
        ops.check_ordering,
        lambda: checks.check_compensations(ops.known_handlers()),
        ops.replay_targets,
    )


#: How much longer than one answer all of them together may take: connects, second tries and many
#: questions, on a machine that has other work. A client ends its own waits much sooner.
_ROOM: Final = timedelta(seconds=16)
#: Brokers of which something is known.
_KNOWN: Final = ("redis", "rediss", "sentinel", "sqs", "memory", "filesystem")

#: Who makes which fix; each returns what a person must still do.
_FIXERS: Final[Mapping[str, Callable[[DoctorTarget, Fix], str]]] = {
    redis_rules.CONFIG_SET: redis.config_set,
    rabbitmq_rules.DECLARE_QUEUE: rabbitmq.declare_queue,
    rabbitmq_rules.DECLARE_DELAYS: rabbitmq.declare_delay_queues,
    sqs_rules.CREATE_QUEUE: sqs.create_queue,
    letter_rules.CREATE: letters.create,
}


def examine(
    target: DoctorTarget, *, only: Collection[str] = (), skip: Collection[str] = ()
) -> DoctorReport:
    """Look at everything and return the findings of the checks that are wanted."""
    began = time.monotonic()
    doctor.prepare(target.app)
    probes, findings = _probes(target)
    findings += look_at_all(probes, target.timeout + _ROOM)
    return DoctorReport(
        app=target.at,
        servers=list(dict.fromkeys(probe.at for probe in probes[1:])),
        findings=chosen(_once(findings), only, skip),
        seconds=time.monotonic() - began,
    )


def apply_fix(target: DoctorTarget, fix: Fix) -> str:
    """Make *fix*; return what a person must still do. Raises what its server raises, or refuses."""
    return _FIXERS[fix.kind](target, fix)


def _probes(target: DoctorTarget) -> tuple[list[Probe], list[Finding]]:
    """The probes to run, and findings for the parts that cannot be probed."""
    probes = [Probe(at=target.at, look=lambda: app_findings(target))]
    findings: list[Finding] = list(_unknown_broker(target))
    parts = (
        redis.probes,
        rabbitmq.probes,
        sqs.probes,
        letters.probes,
        payloads.payload_probes,
        databases.probes,
        fleet.probes,
    )
    for part in parts:
        try:
            probes.extend(part(target))
        except ConfigurationError as error:
            findings.append(finding.refused(target.at, str(error)))
        except Exception as error:  # noqa: BLE001 - an odd setting must not hide the other parts
            findings.append(finding.look_failed(target.at, type(error).__name__))
    return probes, findings


def _unknown_broker(target: DoctorTarget) -> Iterator[Finding]:
    scheme = target.broker_url.split(":", 1)[0]
    if scheme not in _KNOWN and not is_amqp(target.broker_url):
        yield finding.not_looked_at(
            f"the {scheme} broker",
            "nothing is known of brokers that are named so",
            "use Redis, RabbitMQ or SQS, by redis://, amqp:// or sqs://",
        )


def _once(findings: Iterable[Finding]) -> list[Finding]:
    """Leave out what two probes found alike: a server is away once, for whatever it is used."""
    once: dict[tuple[str, str, str], Finding] = {}
    for one in findings:
        seen = "" if one.check is finding.AWAY else one.seen
        once.setdefault((one.check.id, one.at, seen), one)
    return list(once.values())
