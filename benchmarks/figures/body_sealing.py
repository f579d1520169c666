"""What it costs a publisher to encrypt the body of a message."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from harness.figure import Figure, Measured

from angzarr.adapters.celery.publish.body_offloader import BodyOffloader
from angzarr.adapters.cryptography.xaes import XaesCipher
from angzarr.payloads.body_sealer import BodyKeys, BodySealer
from angzarr.payloads.claim_check import HEADER, check_in
from angzarr.payloads.sealed_message import find_sealed

MIB = 2**20
#: Of a small body, and of a large one.
SMALL, LARGE = 1024, 100 * MIB
BLOCKS, IN_A_BLOCK = 40, 500


def measure() -> Measured:
    """Encrypt and open one small body often, and a large one thrice."""
    keys = BodyKeys(keys={"k1": os.urandom(32)}, current="k1")
    sealer = BodySealer(keys=keys, cipher=XaesCipher())
    body = json.dumps([[{"filler": "x" * (SMALL - 100)}], {}, {}]).encode()
    offloader = BodyOffloader(None, MIB, sealer=sealer, seals_all=True)

    def publish() -> dict[str, Any]:
        headers: dict[str, Any] = {"task": "t", "id": "e1", "argsrepr": "…"}
        sent = offloader.offloaded(body, "application/json", headers)
        return {**headers, "body": sent}

    made = publish()

    def receive() -> bytes:
        check = check_in({HEADER: made[HEADER]})
        sealed = find_sealed(made["body"])
        assert check is not None
        assert sealed is not None
        return sealer.open(sealed, "e1", check.reference.unpacked_size, check.key)

    large = os.urandom(LARGE)
    sealed = sealer.seal(large, "e1", "k1")
    speed = [_seconds(lambda: sealer.seal(large, "e1", "k1")) for _ in range(3)]
    opening = [_seconds(lambda: sealer.open(sealed, "e1", LARGE, "k1")) for _ in range(3)]
    return Measured(
        values=[_microseconds(publish) for _ in range(BLOCKS)],
        detail={
            "opening it, µs": round(median(_microseconds(receive) for _ in range(BLOCKS)), 1),
            "bytes of the body, and sealed": f"{len(body)} and {len(made['body'])}",
            "MiB/s for a body of 100 MiB": round(LARGE / MIB / median(speed)),
            "MiB/s to open it": round(LARGE / MIB / median(opening)),
        },
    )


def _microseconds(call: Callable[[], object]) -> float:
    began = time.process_time()
    for _ in range(IN_A_BLOCK):
        call()
    return (time.process_time() - began) / IN_A_BLOCK * 1e6


def _seconds(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


FIGURES = (
    Figure(
        key="body_sealing_us",
        title="encrypt the body of a message of 1 KiB, before it is sent",
        unit="µs",
        aim="≤ 100 µs",
        against="nothing: a publish without payloads.encrypt",
        how=(
            "One process, one thread, no server: processor time of `BodyOffloader`, the check in"
            " the headers, the keyed digest and base64 included. The value is the median over"
            " blocks of 500. A body of 100 MiB that cannot be packed is encrypted and opened, too."
        ),
        measure=measure,
    ),
)
