"""Where the real servers are: an address in the environment, else what tests/servers wrote down."""

from __future__ import annotations

import functools
import json
import os
import secrets

from tests.conftest import STATE, VARIABLES


class NotRunning(Exception):
    """A scenario needs a server that is not there."""


def address(server: str) -> str:
    """Return the address of *server*; raises NotRunning."""
    written = json.loads(STATE.read_text()) if STATE.exists() else {}
    known = {key: value for one in written.values() for key, value in one["addresses"].items()}
    found = os.environ.get(VARIABLES[server]) or known.get(VARIABLES[server])
    if not found:
        raise NotRunning(f"no {server}: run `make servers-up`, or set {VARIABLES[server]}")
    return found


@functools.cache
def own_name() -> str:
    """Return a name that no other run has, for databases, virtual hosts and topics."""
    return f"corpus_{secrets.token_hex(4)}"
