"""Facts of what people do to dead letters outside the ledger: move, drain, import, forward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from angzarr.cli.application import load_application
from angzarr.facts.act import ActKind
from angzarr.wiring.analysis_worker import person


def record_letters(
    app_name: str | None, kind: ActKind, place: str, data: Mapping[str, Any]
) -> None:
    """Say in the facts of the app that letters of *place* were carried; none were: say nothing.

    Commands that are given no app, but the URLs of two queues, know of no place for facts.
    """
    if app_name and any(data[name] for name in ("carried", "unreadable") if name in data):
        load_application(app_name).acts.record(kind, place, by=person(), data=data)
