"""Payload wiring: from settings to the payload store; imports only the technology it names."""

from __future__ import annotations

import importlib
from pathlib import Path

from angzarr import wiring
from angzarr.dead_letters.queue import DeadLetterQueue
from angzarr.payload_section import PayloadSettings, place_of
from angzarr.payloads import PayloadStore


def open_payloads(given: PayloadSettings) -> PayloadStore | None:
    """Return the payload store, None where none is configured; connects when it is first used."""
    if given.url is None:
        return None
    place = place_of(given.url)
    store: PayloadStore
    if place.scheme == "file":
        files = importlib.import_module("angzarr.adapters.files.payloads")
        store = files.FilePayloadStore(Path(place.path))
    else:
        s3 = wiring.adapter("s3.payloads", "boto3", brought_by="s3")
        store = s3.S3PayloadStore(
            place.bucket, place.path, region=given.region, endpoint_url=given.endpoint_url
        )
    return store


def offloading(queue: DeadLetterQueue, given: PayloadSettings) -> DeadLetterQueue:
    """Return *queue*, which is that of one backend, with the payload store beside it if any."""
    store = open_payloads(given)
    if store is None:
        return queue
    module = importlib.import_module("angzarr.dead_letters.offloading")
    beside: DeadLetterQueue = module.OffloadingQueue(queue, store, over=given.over)
    return beside
