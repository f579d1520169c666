"""Writes several log records in few calls of the system: each call lets other threads go first."""

from __future__ import annotations

import logging
import select
from collections.abc import Iterator, Sequence
from logging.handlers import WatchedFileHandler
from typing import Any, Final

#: Handlers that write each line to a stream, and do nothing else.
_PLAIN: Final = (logging.StreamHandler, logging.FileHandler, WatchedFileHandler)
#: Bytes that a pipe takes as a whole: lines of several processes must not mix.
_AT_ONCE: Final = select.PIPE_BUF


def handle_all(logger: logging.Logger, records: Sequence[logging.LogRecord]) -> None:
    """Do with *records*, which have one level, as ``logger.handle`` does with each."""
    handlers = list(_handlers_of(logger))
    if len(records) == 1 or logger.filters or logger.disabled or not all(map(_is_plain, handlers)):
        for record in records:
            logger.handle(record)
        return
    for handler in handlers:
        if records and records[0].levelno >= handler.level:
            handler.acquire()
            try:
                _write(handler, records)
            finally:
                handler.release()


def _handlers_of(logger: logging.Logger) -> Iterator[logging.Handler]:
    """Yield the handlers that get what *logger* says, in their order."""
    one: logging.Logger | None = logger
    while one is not None:
        yield from one.handlers
        one = one.parent if one.propagate else None


def _is_plain(handler: logging.Handler) -> bool:
    """True if *handler* writes each line as its class does; its file is open."""
    changed = not vars(handler).keys().isdisjoint(("emit", "handle"))
    kind, stream = type(handler), getattr(handler, "stream", None)
    return kind in _PLAIN and stream is not None and not handler.filters and not changed


def _write(handler: Any, records: Sequence[logging.LogRecord]) -> None:
    """Write lines together, as many as fit; a record without a line is shown as ever."""
    lines: list[str] = []
    of: list[logging.LogRecord] = []
    size = 0
    for record in records:
        try:
            line = handler.format(record) + handler.terminator
        except Exception:  # noqa: BLE001 - a user's own value is looked at
            handler.handleError(record)
            continue
        if lines and size + len(line) > _AT_ONCE:
            _emit(handler, lines, of)
            lines, of, size = [], [], 0
        lines.append(line)
        of.append(record)
        size += len(line)
    if lines:
        _emit(handler, lines, of)


def _emit(handler: Any, lines: Sequence[str], of: Sequence[logging.LogRecord]) -> None:
    try:
        if isinstance(handler, WatchedFileHandler):
            handler.reopenIfNeeded()
        handler.stream.write("".join(lines))
        handler.flush()
    except Exception:  # noqa: BLE001 - as in `logging`: the program goes on
        for record in of:
            handler.handleError(record)
