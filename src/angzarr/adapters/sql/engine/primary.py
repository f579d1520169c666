"""The primary: a PostgreSQL that takes writes is wanted, and no connection to another one is kept.

After a failover an address may lead to the old primary for a while, which is a standby by then. It
takes connections, answers, and refuses each write, for as long as the pool lends its connection.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import URL, Engine, ExceptionContext, event

#: Asks libpq for a server that takes writes, of the one or the several that an address names.
WANTED: Final = {"target_session_attrs": "read-write"}
#: SQLSTATEs by which a server says that it is not the one: read_only_sql_transaction.
_READ_ONLY: Final = "25006"
#: And that it is not the one now, or not yet: admin_shutdown, crash_shutdown and
#: cannot_connect_now; class 08 is the connection itself. A pooler may pass them on and stay.
_NOT_NOW: Final = ("57P01", "57P02", "57P03", "08")


def keep_only_the_primary(engine: Engine) -> None:
    """Let *engine* drop its connections once one of them leads to a server that is not the one.

    All of its pool, which leads to the same place. The error counts as a disconnect:
    `connection_invalidated` is true of it.
    """

    @event.listens_for(engine, "handle_error")
    def judge(context: ExceptionContext) -> None:
        state = _state(context.original_exception)
        if state == _READ_ONLY or state.startswith(_NOT_NOW):
            context.is_disconnect = True


def cure_of(error: object, url: URL) -> str:
    """Return what to say beside *error*, a driver's; empty where it says enough itself."""
    # A refused connect has no SQLSTATE: libpq asked, and says so in words of its own.
    if _state(error) != _READ_ONLY and "session is read-only" not in str(error):
        return ""
    asked = url.query.get("target_session_attrs", WANTED["target_session_attrs"])
    return (
        f" (it takes no writes now: it is a standby, or set read-only; connections are made anew,"
        f" with target_session_attrs={asked}, until the address leads to the primary)"
    )


def _state(error: object) -> str:
    state: Any = getattr(error, "sqlstate", None)
    return state if isinstance(state, str) else ""
