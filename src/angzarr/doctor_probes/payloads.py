"""Where large bodies go: each payload store of the app, and from which size on."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Final

from angzarr.adapters.celery.publish.body_offloader import safe_size
from angzarr.doctor import letter_rules
from angzarr.doctor.encryption_rules import EncryptionSeen, encryption_findings
from angzarr.doctor.finding import Finding, Probe
from angzarr.doctor.letter_rules import PayloadsSeen
from angzarr.doctor.payload_rules import LATE, LONG, BodiesSeen, body_findings
from angzarr.doctor_probes import DoctorTarget
from angzarr.doctor_probes.databases import keeps_claims
from angzarr.doctor_probes.redis import failing
from angzarr.errors import Unavailable
from angzarr.payloads.collector import PayloadRegister, PayloadState
from angzarr.settings.payloads import PayloadPlace, PayloadStoreSettings, place_of
from angzarr.wiring import payloads as payload_wiring
from angzarr.wiring import stores as wiring
from angzarr.wiring.ledger import ledger_url

FREE, CONDEMNED, HELD = PayloadState.FREE, PayloadState.CONDEMNED, PayloadState.HELD


def payload_probes(target: DoctorTarget) -> Iterator[Probe]:
    """A probe of each payload store, and of the threshold; raises MissingExtra."""
    if not target.ours:
        return
    settings = target.settings
    stores = {"dlq.payloads.url": settings.dlq.payloads, "payloads.url": settings.payloads}
    looked_at: set[str] = set()
    for name, given in stores.items():
        if given.url is not None and given.url not in looked_at:
            looked_at.add(given.url)
            yield _store(target, name, given, place_of(given.url))
    yield _encryption(target)
    if looked_at:
        yield Probe(at=target.at, look=lambda: body_findings(_bodies(target)), **failing(target))
    if settings.payloads.url is not None and settings.payloads.over is not None:
        yield _threshold(target, settings.payloads.over)


def _store(
    target: DoctorTarget, name: str, given: PayloadStoreSettings, place: PayloadPlace
) -> Probe:
    if place.scheme == "file":
        return _folder(name, Path(place.path))
    if place.scheme == "s3":
        return _bucket(target, given, place)
    return _fsspec(name, given)


def _threshold(target: DoctorTarget, over: int) -> Probe:
    safe = safe_size(target.broker_url)
    return Probe(
        at="payloads.over",
        look=lambda: letter_rules.threshold_findings("payloads.over", over, safe),
    )


#: Bodies that are counted; whether there are more is all that matters then.
_PAGE: Final = 1_000


def _bodies(target: DoctorTarget) -> BodiesSeen:
    """What is known of the app's bodies; without the register where that is away."""
    given, ledger = target.settings.payloads, ledger_url(target.settings, target.broker_url)
    opened = payload_wiring.open_holders(target.settings, target.broker_url)
    seen = BodiesSeen(at=target.at, has_claims=opened is not None, has_ledger=ledger is not None)
    if opened is None or not keeps_claims(target, "stored_payloads"):
        return seen
    register: PayloadRegister = opened()
    try:
        late = [
            one
            for state, span in ((FREE, given.grace + LATE), (CONDEMNED, LATE))
            for one in register.find(state, span, limit=_PAGE)
        ]
        held = register.find(HELD, LONG, limit=_PAGE) if given.keep is None else []
    except Unavailable:  # which another probe reports
        return seen
    return replace(
        seen,
        late=len(late),
        late_for=max((one.since for one in late), default=timedelta(0)),
        held_long=len(held),
        more=_PAGE in (len(late), len(held)),
    )


def _encryption(target: DoctorTarget) -> Probe:
    given, conf = target.settings.payloads, target.app.conf
    seen = EncryptionSeen(
        at=target.at,
        letters=bool(target.settings.dlq.encryption_keys),
        bodies=given.body_encryption().value,
        has_store=given.url is not None,
        serializer=str(conf.task_serializer),
        protocol=int(conf.task_protocol),
    )
    return Probe(at=target.at, look=lambda: encryption_findings(seen))


def _folder(name: str, path: Path) -> Probe:
    adapter = importlib.import_module("angzarr.adapters.files.doctor")
    at = f"payloads at {path}"

    def look() -> Iterator[Finding]:
        there, kind = adapter.ground(path)
        if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
            problem, cure = f"this user may not write to the folder {there}", "fix its rights"
            seen = PayloadsSeen(at=at, problem=problem, cure=f"{cure}, or {name}")
        else:
            seen = PayloadsSeen(at=at, file_system=kind)
        yield from letter_rules.payload_findings(seen)

    return Probe(at=at, look=look, failures=(OSError,))


def _fsspec(name: str, given: PayloadStoreSettings) -> Probe:
    store = payload_wiring.open_store(given)
    at = f"payloads at {store}"

    def look() -> Iterator[Finding]:
        assert store is not None  # noqa: S101 - it has a URL
        is_there = store.is_there()  # type: ignore[attr-defined]
        problem = "" if is_there else "the bucket or folder does not exist"
        seen = PayloadsSeen(at=at, problem=problem, cure=f"make it, or fix {name}")
        yield from letter_rules.payload_findings(seen)

    return Probe(at=at, look=look)


def _bucket(target: DoctorTarget, given: PayloadStoreSettings, place: PayloadPlace) -> Probe:
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
            timeout=target.timeout.total_seconds(),
        )
        yield from letter_rules.payload_findings(seen)

    return Probe(at=at, look=look, failures=client.FAILURES, reason=client.reason_of)
