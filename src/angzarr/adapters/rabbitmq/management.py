"""Management: what RabbitMQ's HTTP interface knows and AMQP does not tell; only reads."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from angzarr.adapters.rabbitmq.queue_arguments import Value
from angzarr.errors import ConfigurationError

#: Where it is unless somebody says otherwise.
PORT: Final = 15672
#: Of an answer that is longer nothing is believed: some thousand queues.
_LONGEST: Final = 32 * 1024**2
_ALARMS: Final = {"mem_alarm": "memory", "disk_free_alarm": "disk"}


class Management:
    """Asks the interface at *url*, with the user in it; answers are None where it is away."""

    def __init__(self, url: str, virtual_host: str, *, timeout: float) -> None:
        try:
            self._parts = urlsplit(url)
            self._port = self._parts.port
        except ValueError as error:
            msg = "the management address must read http://user:password@host:15672"
            raise ConfigurationError(msg) from error
        if self._parts.scheme not in ("http", "https") or not self._parts.hostname:
            msg = "the management address must read http://user:password@host:15672"
            raise ConfigurationError(msg)
        self._vhost = quote(virtual_host, safe="")
        self._timeout = timeout

    def alarms(self) -> Mapping[str, Sequence[str]] | None:
        """Return the alarms of each node, which may be none."""
        nodes = self._get("nodes")
        if not isinstance(nodes, list):
            return None
        return {
            str(node.get("name")): [said for key, said in _ALARMS.items() if node.get(key)]
            for node in nodes
            if isinstance(node, dict)
        }

    def queues(self) -> Mapping[str, Mapping[str, Any]]:
        """Return all queues of the virtual host by name; none where that is not told."""
        found = self._get(f"queues/{self._vhost}")
        listed = found if isinstance(found, list) else []
        return {str(one.get("name")): one for one in listed if isinstance(one, dict)}

    def bound_to(self, exchange: str) -> int | None:
        """Return how many bindings lead away from *exchange*; 0 where there is no such one."""
        found = self._get(f"exchanges/{self._vhost}/{quote(exchange, safe='')}/bindings/source")
        return len(found) if isinstance(found, list) else None

    def _get(self, path: str) -> Any:
        """Return the answer; None where there is none, or none that is JSON."""
        kind = (
            http.client.HTTPSConnection
            if self._parts.scheme == "https"
            else http.client.HTTPConnection
        )
        connection = kind(str(self._parts.hostname), self._port or PORT, timeout=self._timeout)
        try:
            connection.request("GET", f"/api/{path}", headers=self._headers())
            reply = connection.getresponse()
            text = reply.read(_LONGEST)
            if reply.status == http.client.NOT_FOUND:
                return []
            return json.loads(text) if reply.status == http.client.OK else None
        except (OSError, http.client.HTTPException, ValueError, RecursionError):
            return None
        finally:
            connection.close()

    def _headers(self) -> dict[str, str]:
        user = unquote(self._parts.username or "guest")
        password = unquote(self._parts.password or "guest")
        login = base64.b64encode(f"{user}:{password}".encode()).decode()
        return {"Authorization": f"Basic {login}"}


def policy_arguments(queue: Mapping[str, Any]) -> dict[str, Value]:
    """Return what policies add to the arguments of *queue*, spelt as arguments are."""
    policy = queue.get("effective_policy_definition")
    given = policy.items() if isinstance(policy, dict) else ()
    return {f"x-{name}": value for name, value in given if isinstance(value, str | int)}
