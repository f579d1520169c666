"""Writes several log lines in few calls of the system: each call lets other threads go first.

`handle_all` takes records, for any handlers. `write_json` takes lines that are JSON already, for
handlers that would only render them so and write them: that spares each line its record.
"""

from __future__ import annotations

import logging
import os
import select
import stat
from collections.abc import Iterator, Sequence
from logging.handlers import WatchedFileHandler
from typing import Any, Final

from angzarr.adapters.structlog.logs import JsonFormatter

#: Handlers that write each line to a stream, and do nothing else.
_PLAIN: Final = (logging.StreamHandler, logging.FileHandler, WatchedFileHandler)
#: Bytes that a pipe takes as a whole, and a file: lines of several processes must not mix.
_AT_ONCE: Final = select.PIPE_BUF
_FILE_AT_ONCE: Final = 1 << 16


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


def takes_json(logger: logging.Logger) -> bool:
    """True if all that becomes of a line of *logger* is our JSON in a stream: see `write_json`."""
    if logger.filters or logger.disabled or type(logger).handle is not logging.Logger.handle:
        return False
    if logging.getLogRecordFactory() is not logging.LogRecord:
        return False
    return all(
        type(one.formatter) is JsonFormatter and _is_plain(one) for one in _handlers_of(logger)
    )


def write_json(logger: logging.Logger, lines: Sequence[tuple[int, str]]) -> None:
    """Write *lines*, each its level and our JSON, as ``logger.handle`` does with their records."""
    for handler in _handlers_of(logger):
        wanted = [text for level, text in lines if level >= handler.level]
        if not wanted:
            continue
        handler.acquire()
        try:
            _write_together(handler, [(text, None) for text in wanted])
        finally:
            handler.release()


def _takes_at_once(stream: Any) -> int:
    """Bytes of one write to *stream*; more to a file, which its kernel locks for each write."""
    try:
        is_file = stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (AttributeError, OSError, ValueError):  # it is in memory, or closed
        return _AT_ONCE
    return _FILE_AT_ONCE if is_file else _AT_ONCE


def _handlers_of(logger: logging.Logger) -> Iterator[logging.Handler]:
    """Yield the handlers that get what *logger* says, in their order."""
    one: logging.Logger | None = logger
    while one is not None:
        yield from one.handlers
        one = one.parent if one.propagate else None


def _is_plain(handler: logging.Handler) -> bool:
    """True if *handler* writes each line as its class does; its file is open."""
    if type(handler) not in _PLAIN or handler.filters:
        return False
    own = handler.__dict__
    return own.get("stream") is not None and "emit" not in own and "handle" not in own


#: A line and its record; None: it was written without one.
_Line = tuple[str, logging.LogRecord | None]


def _write(handler: Any, records: Sequence[logging.LogRecord]) -> None:
    """Write lines together; a record without a line is shown as ever."""
    lines: list[_Line] = []
    for record in records:
        try:
            lines.append((handler.format(record), record))
        except Exception:  # noqa: BLE001 - a user's own value is looked at
            handler.handleError(record)
    _write_together(handler, lines)


def _write_together(handler: Any, lines: Sequence[_Line]) -> None:
    """Write as many lines at once as fit."""
    most = _takes_at_once(handler.stream) if len(lines) > 1 else 0
    chunk: list[_Line] = []
    size = 0
    for line in lines:
        length = len(line[0]) + len(handler.terminator)
        if chunk and size + length > most:
            _emit(handler, chunk)
            chunk, size = [], 0
        chunk.append(line)
        size += length
    if chunk:
        _emit(handler, chunk)


def _emit(handler: Any, lines: Sequence[_Line]) -> None:
    try:
        if isinstance(handler, WatchedFileHandler):
            handler.reopenIfNeeded()
        handler.stream.write("".join(text + handler.terminator for text, _ in lines))
        handler.flush()
    except Exception:  # noqa: BLE001 - as in `logging`: the program goes on
        for text, record in lines:
            handler.handleError(record or _record_of(text))


def _record_of(text: str) -> logging.LogRecord:
    """A record to show why *text* was not written."""
    return logging.LogRecord("angzarr", logging.INFO, __file__, 0, text, (), None)
