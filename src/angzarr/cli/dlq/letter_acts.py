"""Facts of what people do to dead letters outside the ledger: move, drain, import, forward."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

from angzarr.cli.application import load_application
from angzarr.facts.act import ActKind
from angzarr.wiring.analysis_worker import person

#: Takes what is to be told of the letters that were carried, and how many these were.
TellCarried: TypeAlias = Callable[[Mapping[str, Any]], None]


@contextmanager
def recording_letters(app_name: str | None, kind: ActKind, place: str) -> Iterator[TellCarried]:
    """Say in the facts of the app that letters of *place* are carried, and then which were.

    Commands that are given no app, but the URLs of two queues, know of no place for facts.
    """
    if not app_name:
        yield lambda _data: None
        return
    with load_application(app_name).acts.recording(kind, place, by=person()) as act:

        def tell(data: Mapping[str, Any]) -> None:
            if any(data[name] for name in ("carried", "unreadable") if name in data):
                act.done(data)

        yield tell
