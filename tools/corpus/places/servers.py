"""Where the real servers are: an address in the environment, else what tools/servers wrote down."""

from __future__ import annotations

import functools
import secrets

from tools import addresses


class NotRunning(Exception):
    """A scenario needs a server that is not there."""


def address(server: str) -> str:
    """Return the address of *server*; raises NotRunning."""
    variable = addresses.VARIABLES[server]
    found = addresses.addresses().get(variable)
    if not found:
        raise NotRunning(f"no {server}: run `make servers-up`, or set {variable}")
    return found


@functools.cache
def own_name() -> str:
    """Return a name that no other run has, for databases, virtual hosts and topics."""
    return f"corpus_{secrets.token_hex(4)}"
