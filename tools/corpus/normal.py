"""Normal: a letter without what differs from machine to machine and from run to run.

Its group is named anew: a folder of this machine in a text would be part of the name.
"""

from __future__ import annotations

import re
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from angzarr.dead_letters.fingerprint import fingerprint
from angzarr.dead_letters.letter import DeadLetter
from angzarr.events import headers as names

CHECKOUT = Path(__file__).resolve().parents[2]
_PACKAGES = "/srv/venv/lib/python3.11/site-packages"

#: Folders of this machine → where they would be in production; longest first.
_FOLDERS = sorted(
    {
        f"{CHECKOUT}/tools/corpus/themes": "/srv/shop/shop",
        f"{CHECKOUT}/tools/corpus/held_out": "/srv/shop/shop",
        f"{CHECKOUT}/src": _PACKAGES,
        f"{CHECKOUT}": "/srv/shop",
        sysconfig.get_path("purelib"): _PACKAGES,
        str(Path(sysconfig.get_path("purelib")).resolve()): _PACKAGES,
        str(Path(sys.prefix).resolve()): "/srv/venv",
        sysconfig.get_path("stdlib"): "/usr/lib/python3.11",
        tempfile.gettempdir(): "/srv/tmp",
    }.items(),
    key=lambda pair: -len(pair[0]),
)

#: What differs from run to run in the texts of clients and servers.
_RUNS = (
    (re.compile(r"0x[0-9a-f]{8,16}\b"), "0x7f3a5c0d1e40"),
    (re.compile(r"\b([Pp]rocess|PID) \d+"), r"\1 4711"),
    (re.compile(r"\btransaction \d+"), "transaction 815"),
    (re.compile(r"/srv/tmp/corpus-[a-z0-9_]+"), "/srv/tmp/corpus"),
    (re.compile(r"\bcorpus_[0-9a-f]{8}(?![0-9a-f])"), "corpus"),
    (re.compile(r"\bcorpus-[0-9a-f]{8}\b"), "corpus"),
    (re.compile(r"\bopen for [0-9.]+ s more"), "open for 80.1 s more"),
    (re.compile(r"timed out after 0\.\d+ seconds"), "timed out after 0.1 seconds"),
)
#: Ports of this run → the port shown instead.
_PORTS: dict[int, int] = {}


def show_port(port: int, instead: int) -> None:
    """Write *instead* wherever *port* of this run stands in a text."""
    _PORTS[port] = instead


def normal(letter: DeadLetter, at: datetime) -> DeadLetter:
    """Return *letter* as it would be anywhere, as of *at*."""
    if letter.envelope:
        return letter
    shown = replace(
        letter,
        explanation=text(letter.explanation),
        error_message=text(letter.error_message),
        error_stack=text(letter.error_stack),
        first_attempt_at=at,
        last_attempt_at=at + timedelta(minutes=4),
        sent_to_dlq_at=at + timedelta(minutes=4),
        worker="worker-1",
        message=replace(
            letter.message,
            headers=_headers(letter.message.headers),
            properties={},
        ),
    )
    return replace(shown, fingerprint=_group(shown))


def text(said: str) -> str:
    """Return *said* without this machine's folders, ports, addresses and numbers of a run."""
    for folder, instead in _FOLDERS:
        said = said.replace(folder, instead)
    for port, instead in _PORTS.items():
        said = re.sub(rf"\b{port}\b", str(instead), said)
    for pattern, instead in _RUNS:
        said = pattern.sub(instead, said)
    return said


def _headers(found: Any) -> dict[str, Any]:
    known: dict[str, Callable[[Any], Any]] = {
        "origin": lambda _: "gen17@publisher-1",
        "x-death": lambda deaths: [{**death, "time": 1777888800} for death in deaths],
        names.FIRST_ATTEMPT_AT: lambda _: None,
    }
    headers = {
        name: known[name](value) if name in known else value for name, value in found.items()
    }
    return {name: value for name, value in headers.items() if value is not None}


def _same(value: Any) -> Any:
    return value


def _group(letter: DeadLetter) -> str:
    return fingerprint(
        handler=letter.handler,
        error_type=letter.error_type,
        message=letter.error_message,
        stack=letter.error_stack,
    )
