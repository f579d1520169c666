"""RabbitMQ: a virtual host of this run's own."""

from __future__ import annotations

import atexit
import functools
import json
import os
import urllib.request
from base64 import b64encode
from typing import Any
from urllib.parse import urlsplit

from tools.addresses import MANAGEMENT, STATE
from tools.corpus.normal import show_port
from tools.corpus.places.servers import NotRunning, address, own_name


@functools.cache
def vhost() -> str:
    """Make the virtual host, with the server's own user and one who may make nothing."""
    name, user = own_name(), urlsplit(address("rabbitmq")).username or "guest"
    show_port(urlsplit(address("rabbitmq")).port or 5672, 5672)
    rights = {"configure": ".*", "write": ".*", "read": ".*"}
    _manage("PUT", f"vhosts/{name}", {})
    atexit.register(_manage, "DELETE", f"vhosts/{name}", None)
    _manage("PUT", f"permissions/{name}/{user}", rights)
    _manage("PUT", f"users/{name}", {"password": name, "tags": ""})
    atexit.register(_manage, "DELETE", f"users/{name}", None)
    _manage("PUT", f"permissions/{name}/{name}", {**rights, "configure": "^$", "write": "^$"})
    return name


def _manage(method: str, path: str, body: dict[str, str] | None) -> None:
    place = urlsplit(_management())
    login = b64encode(f"{place.username}:{place.password}".encode()).decode()
    request = urllib.request.Request(
        f"http://{place.hostname}:{place.port}/api/{path}",
        data=json.dumps(body).encode() if body is not None else None,
        headers={"Authorization": f"Basic {login}", "Content-Type": "application/json"},
        method=method,
    )
    urllib.request.urlopen(request, timeout=10).close()


def _management() -> str:
    written = json.loads(STATE.read_text()) if STATE.exists() else {}
    known: dict[str, Any] = written.get("rabbitmq", {}).get("addresses", {})
    found = os.environ.get(MANAGEMENT) or known.get(MANAGEMENT)
    if not found:
        raise NotRunning(f"no RabbitMQ management: set {MANAGEMENT}")
    return str(found)


def url(user: str = "", password: str = "", path: str = "") -> str:
    place = urlsplit(address("rabbitmq"))
    login = f"{user or place.username}:{password or place.password}"
    return f"amqp://{login}@{place.hostname}:{place.port}/{path or vhost()}"


def humble_url() -> str:
    """Return the address for a user who may neither make nor write anything."""
    return url(vhost(), vhost())
