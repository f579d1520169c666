"""Logs as key and value, JSON in production, readable on a terminal (spec O4).

All lines go through stdlib logging, so that Celery's handlers and levels stay in force. Who
configured structlog before us keeps that configuration.

Line: what a log line of ours is on its way through stdlib logging, and how it becomes JSON.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson
import structlog
from structlog.processors import JSONRenderer, StackInfoRenderer, TimeStamper, format_exc_info
from structlog.stdlib import (
    BoundLogger,
    LoggerFactory,
    ProcessorFormatter,
    add_log_level,
    add_logger_name,
    filter_by_level,
)
from structlog.typing import EventDict, Processor

#: What every stdlib format says by itself.
_SAID_ELSEWHERE = frozenset({"event", "level", "logger", "timestamp", "exc_info"})

#: Dates are written as `str` does it, as all is that JSON has no word for.
_OPTIONS = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS
#: Made once: `json.dumps` would make one a line.
_ASCII = json.JSONEncoder(default=str, separators=(",", ":"))


def to_json(fields: Mapping[str, Any], **_options: Any) -> str:
    """*fields* as one line of JSON in ASCII; takes the options that structlog gives."""
    try:
        line = orjson.dumps(fields, default=str, option=_OPTIONS)
    except (TypeError, RecursionError):  # half a surrogate pair, a huge number, an odd key
        return _ASCII.encode(fields)
    # Terminals obey some characters beyond ASCII, and some programs end a line at them.
    return line.decode() if line.isascii() else _ASCII.encode(fields)


class Line(dict[str, Any]):
    """A line's fields; as text ``event key=value …``, for handlers without our formatter."""

    def __str__(self) -> str:
        pairs = [f"{key}={value!r}" for key, value in self.items() if key not in _SAID_ELSEWHERE]
        return " ".join([str(self.get("event", "")), *pairs])


class JsonFormatter(ProcessorFormatter):
    """Renders as its processors say. A `Line` without an exception is all there is to render."""

    def format(self, record: logging.LogRecord) -> str:
        """*record* as one line of JSON."""
        line = record.msg
        if isinstance(line, Line) and "exc_info" not in line:
            return to_json(line)
        return super().format(record)


HANDLER_LOG = "angzarr.handler"


def _to_stdlib(
    logger: Any, name: str, fields: EventDict
) -> tuple[tuple[Line], dict[str, dict[str, Any]]]:
    """Hand the fields on unrendered: the handler's formatter decides how they look."""
    (line,), options = ProcessorFormatter.wrap_for_formatter(logger, name, fields)
    if fields.get("exc_info"):  # for formatters that are not ours
        options["exc_info"] = fields["exc_info"]
    return (Line(line),), options


#: Tells the fields of the delivery in hand, in a process that runs any; asked for each line.
_TELLERS: Final[list[Callable[[], Mapping[str, Any]]]] = []


def name_by(tell: Callable[[], Mapping[str, Any]]) -> None:
    """Let each line say what *tell* returns where it is logged; the last *tell* counts."""
    _TELLERS[:] = [tell]


def name_delivery(_: object, __: str, fields: EventDict) -> EventDict:
    """Add the fields of the delivery in hand; a structlog processor, for your own chain too."""
    for tell in _TELLERS:
        for name, value in tell().items():
            fields.setdefault(name, value)
    return fields


_STAMP = TimeStamper(fmt="iso", utc=True)
_SHARED: list[Processor] = [
    structlog.contextvars.merge_contextvars,
    name_delivery,
    add_logger_name,
    add_log_level,
    _STAMP,
    StackInfoRenderer(),
]
_PROCESSORS: list[Processor] = [filter_by_level, *_SHARED, _to_stdlib]


#: What was ever bound to a context by structlog; to merge means to look at each context variable.
_BOUND: Mapping[str, Any] = structlog.contextvars._CONTEXT_VARS  # noqa: SLF001


def complete(logger: logging.Logger, level: str, line: Line) -> None:
    """Add to *line* what our chain adds to every line; a test compares them."""
    if _BOUND:
        structlog.contextvars.merge_contextvars(logger, level, line)
    name_delivery(logger, level, line)
    line["logger"] = logger.name
    line["level"] = level
    _STAMP(logger, level, line)


def says_more() -> bool:
    """True if a line that is written here says more than its own fields: what is bound around."""
    if _BOUND and structlog.contextvars.get_contextvars():
        return True
    return any(tell() for tell in _TELLERS)


def is_ours() -> bool:
    """True if structlog is configured as `dress` does it."""
    return structlog.get_config()["processors"] is _PROCESSORS


def configure(level: int = logging.INFO, *, json: bool | None = None) -> None:
    """Set up logging to stderr for a process of our own; *json* None: unless it is a terminal.

    Our lines from *level*, those of other libraries from WARNING: httpx tells URLs, which hold
    secrets, at INFO. Where the app has set up logging itself that stays as it is.
    """
    root = logging.getLogger()
    if root.handlers:
        _route()
        return
    root.addHandler(logging.StreamHandler())
    logging.getLogger("angzarr").setLevel(level)
    dress(root, json)


def dress_celerys(logger: logging.Logger, line: str) -> None:
    """Let the handlers that Celery gave *logger* write our lines; a user's write as they do.

    Meant for Celery's signals ``after_setup_logger`` and ``after_setup_task_logger``, which tell
    the form of a *line* that Celery's own handlers have.
    """
    dress(logger, wanted=lambda handler: _is_celerys(handler.formatter, line))


def _is_celerys(form: logging.Formatter | None, line: str) -> bool:
    celerys = type(form).__module__ in ("celery.utils.log", "celery.app.log")
    return celerys and getattr(form, "_fmt", None) == line


def dress(
    logger: logging.Logger,
    json: bool | None = None,  # noqa: FBT001 - as above
    wanted: Callable[[logging.Handler], bool] = lambda _: True,
) -> None:
    """Let *wanted* handlers of *logger* write our lines; their levels and streams stay."""
    if not _route():
        return
    for handler in filter(wanted, logger.handlers):
        terminal = _is_terminal(handler)
        handler.setFormatter(
            formatter(json=not terminal if json is None else json, colors=terminal)
        )


def formatter(*, json: bool, colors: bool = False) -> logging.Formatter:
    """The formatter of our lines and of those of plain loggers."""
    # Plain tracebacks: rich ones show local variables, and with them secrets.
    human = structlog.dev.ConsoleRenderer(
        colors=colors, exception_formatter=structlog.dev.plain_traceback
    )
    render: list[Processor] = [format_exc_info, JSONRenderer(to_json)] if json else [human]
    kind = JsonFormatter if json else ProcessorFormatter
    return kind(
        foreign_pre_chain=_SHARED, processors=[ProcessorFormatter.remove_processors_meta, *render]
    )


def bound_logger(fields: Mapping[str, Any], name: str = HANDLER_LOG) -> BoundLogger:
    """A logger that says *fields* on every line; what a handler gets as ``ctx.log``.

    It follows the configuration that holds when it is first used, not when it is made.
    """
    logger: BoundLogger = structlog.wrap_logger(
        logging.getLogger(name), wrapper_class=BoundLogger, **fields
    )
    return logger


def _route() -> bool:
    """Send structlog's lines through stdlib logging; False where others configured it."""
    if not structlog.is_configured():
        structlog.configure(
            processors=_PROCESSORS,
            logger_factory=LoggerFactory(),
            wrapper_class=BoundLogger,
            cache_logger_on_first_use=True,
        )
    return is_ours()


def _is_terminal(handler: logging.Handler) -> bool:
    isatty = getattr(getattr(handler, "stream", None), "isatty", None)
    return bool(isatty and isatty())
