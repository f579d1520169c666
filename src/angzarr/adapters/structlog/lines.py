"""Line: what a log line of ours is on its way through stdlib logging, and how it becomes JSON."""

from __future__ import annotations

import json
import logging
from typing import Any

from structlog.stdlib import ProcessorFormatter

#: What every stdlib format says by itself.
_SAID_ELSEWHERE = frozenset({"event", "level", "logger", "timestamp", "exc_info"})

#: Made once: `json.dumps` would make one a line.
_JSON = json.JSONEncoder(default=str)


class Line(dict[str, Any]):
    """A line's fields; as text ``event key=value …``, for handlers without our formatter."""

    def __str__(self) -> str:
        pairs = [f"{key}={value!r}" for key, value in self.items() if key not in _SAID_ELSEWHERE]
        return " ".join([str(self.get("event", "")), *pairs])


class JsonFormatter(ProcessorFormatter):
    """Renders as its processors say. A `Line` without an exception is all there is to render."""

    def format(self, record: logging.LogRecord) -> str:
        """Return *record* as one line of JSON."""
        line = record.msg
        if isinstance(line, Line) and "exc_info" not in line:
            return _JSON.encode(line)
        return super().format(record)
