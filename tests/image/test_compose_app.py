"""The app's services of compose.yaml, each in a container of the image, on real servers.

Image, command and environment are those that docker compose reads; only addresses are other ones,
since the servers and the containers share this machine's network here.
"""

from __future__ import annotations

import json
import re
import socket
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest
from tests.image.test_compose import seconds
from tools.image import project

from polling import wait_until

EXAMPLES = project.CHECKOUT / "examples"
#: Services whose health check Compose asks.
CHECKED = ("dashboard", "worker", "analysis")
#: What somebody tries who reads docs/how-to/deploy.md: a parcel-less order shows a bug of `pack`.
PUBLISH = """
from application import app
app.loader.import_default_modules()
from orders import OrderPaid
print(app.publish(OrderPaid(order_id="o-1", email="a@example.com", amount=9, parcels=0)).id)
"""


class Services:
    """The services in containers; each may be run once, or run to its end many times."""

    def __init__(self, make, folder, addresses, ports, variables):
        self._make, self._folder, self._addresses, self._ports = make, folder, addresses, ports
        self.services = project.loaded(**variables)["services"]

    def begin(self, name, **more):
        return self._container(name, self.command(name), **more)

    def run(self, name, *command) -> str:
        """Do what `docker compose run NAME COMMAND` does, and return what it says."""
        code, said = self._container(name, command or self.command(name)).finished()
        assert code == 0, said
        return said

    def check(self, name) -> bool:
        """Run the health check of a service, and say whether it is well."""
        kind, *command = self.services[name]["healthcheck"]["test"]
        assert kind == "CMD"
        port = str(self._ports["dashboard"])
        code, _ = self._container(name, [part.replace("8080", port) for part in command]).finished()
        return code == 0

    def command(self, name) -> list[str]:
        command = list(self.services[name]["command"] or ())
        return [*command, "--port", str(self._ports[name])] if name == "dashboard" else command

    def log(self, name) -> str:
        return (self._folder / name).read_text(errors="replace")

    def _container(self, name, command, **more):
        service = self.services[name]
        (volume,) = service["volumes"]
        assert (volume["source"], volume["target"]) == (str(EXAMPLES), "/app")
        return self._make(*command, app=EXAMPLES, environment=self._environment(name), **more)

    def _environment(self, name) -> dict[str, str]:
        told = {key: value for key, value in self.services[name]["environment"].items() if value}
        return {key: self._here(value) for key, value in told.items()} | {
            "ANGZARR_HEALTH__PORT": str(self._ports[name])
        }

    def _here(self, value: str) -> str:
        return self._addresses.get(urlsplit(value).scheme, value) if "://" in value else value


@pytest.fixture
def services(make, tmp_path, amqp_url, redis_url, postgresql_url):
    addresses = {"amqp": amqp_url, "redis": redis_url, "postgresql+psycopg": postgresql_url}
    ports = {
        name: free_port() for name in ("migrations", "worker", "analysis", "dashboard", "beat")
    }

    def made(**variables):
        return Services(make, tmp_path, addresses, ports, variables)

    return made


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def handled(postgresql_url) -> set[str]:
    """The handlers of which a fact says that they handled an event."""
    with psycopg.connect(postgresql_url.replace("+psycopg", "")) as database:
        rows = database.execute("select tool_id from facts where subtype = 'handled'")
        return {row[0] for row in rows}


def test_the_dashboard_says_in_one_line_that_it_wants_a_token(services):
    one = services()
    code, said = one.begin("dashboard").finished()
    assert code == 1
    assert said.startswith("Error: without tokens the dashboard serves this machine alone")
    assert len(said.splitlines()) == 1


def test_an_event_is_handled_one_fails_and_is_shown_and_beat_rings(
    services, tmp_path, postgresql_url
):
    """Every step as docs/how-to/deploy.md tells it, the token included."""
    shown, hashed = token_of(
        services().run("dashboard", "angzarr", "dashboard", "token", "me", "--role", "operator")
    )
    one = services(ANGZARR_DASHBOARD__TOKENS=json.dumps([hashed]))
    one.run("migrations")
    running = {
        name: one.begin(name, log=tmp_path / name)
        for name in ("worker", "analysis", "beat", "dashboard")
    }
    wait_until(lambda: " ready." in one.log("worker"), "the worker is ready")
    for name in CHECKED:
        wait_until(lambda name=name: one.check(name), f"{name} is well")
    event = one.run("worker", "python", "-c", PUBLISH).strip()
    entries = f"http://127.0.0.1:{one._ports['dashboard']}/api/v1/entries"
    assert httpx.get(entries, trust_env=False).status_code == 401
    entry = wait_until(lambda: first(entries, shown), "the dead letter is shown")
    assert (entry["event_id"], entry["handler_name"]) == (event, "orders.pack")
    expected = {"orders.send_receipt", "stocktaking.ring", "stocktaking.count"}
    wait_until(lambda: expected <= handled(postgresql_url), f"{expected} have run")
    ends = {
        name: container.stop(seconds(one.services[name]["stop_grace_period"]))
        for name, container in running.items()
    }
    assert ends == dict.fromkeys(running, 0)


def token_of(said: str) -> tuple[str, dict[str, str]]:
    """Return the token that was shown, and what the settings are to know of it."""
    shown, _, told = said.strip().splitlines()
    name, role, digest = re.fullmatch(r"- \{name: (.+), role: (.+), sha256: (.+)\}", told).groups()
    return shown, {"name": name, "role": role, "sha256": digest}


def first(entries: str, token: str) -> dict | None:
    told = httpx.get(entries, headers={"X-API-Key": token}, trust_env=False)
    told.raise_for_status()
    return next(iter(told.json()["entries"]), None)
