"""SQLite files that only their owner reads: they hold payloads and stack traces of everybody.

SQLite gives a write-ahead log, its index and a journal the permissions of their database.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from sqlalchemy import Engine, event

_OWNERS_ALONE: Final = 0o600
_NO_FILE: Final = frozenset({"", ":memory:"})


def keep_private(engine: Engine) -> None:
    """Let *engine* make a missing SQLite file for its owner alone, whatever the umask.

    A file that is there keeps the permissions that somebody gave it.
    """

    @event.listens_for(engine, "do_connect")
    def connect(_dialect: Any, _record: Any, args: Any, _options: Any) -> None:
        make_private(str(args[0]) if args else "")


def make_private(database: str) -> None:
    """Make the file of *database*, a path or a `file:` URI of SQLite, unless it is there.

    What keeps it from being made is SQLite's to say.
    """
    path = _path_of(database)
    if path in _NO_FILE:
        return
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _OWNERS_ALONE))


def _path_of(database: str) -> str:
    if not database.startswith("file:"):
        return database
    parts = urlsplit(database)
    makes_none = any(word in parts.query for word in ("mode=ro", "mode=rw&", "mode=memory"))
    is_left = makes_none or parts.query.endswith("mode=rw")
    return "" if is_left else unquote(parts.path)
