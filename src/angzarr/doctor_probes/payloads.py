"""The payload store: where bodies of letters go that are too large for their queue."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from pathlib import Path

from angzarr.doctor import payload_rules
from angzarr.doctor.finding import Finding
from angzarr.doctor.payload_rules import PayloadsSeen
from angzarr.doctor.probe import Probe
from angzarr.doctor_probes.target import Patient
from angzarr.settings.payloads import Place, place_of
from angzarr.wiring import stores as wiring


def probes(patient: Patient) -> Iterator[Probe]:
    """Return a look at the payload store, where there is one; raises MissingExtra."""
    if not patient.ours or patient.settings.dlq.payloads.url is None:
        return
    place = place_of(patient.settings.dlq.payloads.url)
    yield _folder(Path(place.path)) if place.scheme == "file" else _bucket(patient, place)


def _folder(path: Path) -> Probe:
    adapter = importlib.import_module("angzarr.adapters.files.doctor")
    at = f"payloads at {path}"

    def look() -> Iterator[Finding]:
        there, kind = adapter.ground(path)
        if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
            problem, cure = f"this user may not write to the folder {there}", "fix its rights"
            seen = PayloadsSeen(at=at, problem=problem, cure=f"{cure}, or dlq.payloads.url")
        else:
            seen = PayloadsSeen(at=at, file_system=kind)
        yield from payload_rules.findings(seen)

    return Probe(at=at, look=look, failures=(OSError,))


def _bucket(patient: Patient, place: Place) -> Probe:
    given = patient.settings.dlq.payloads
    adapter = wiring.adapter("angzarr.adapters.s3.doctor", "boto3", brought_by="s3")
    client = wiring.adapter("angzarr.adapters.s3.payloads", "boto3", brought_by="s3")
    at = f"payloads at s3://{place.bucket}/{place.path}"

    def look() -> Iterator[Finding]:
        seen = adapter.examine(
            at,
            place.bucket,
            place.path,
            region=given.region,
            endpoint_url=given.endpoint_url,
            timeout=patient.timeout.total_seconds(),
        )
        yield from payload_rules.findings(seen)

    return Probe(at=at, look=look, failures=client.FAILURES, reason=client.reason_of)
