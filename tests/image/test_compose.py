"""compose.yaml: what docker compose reads there, and its services run on real servers."""

from __future__ import annotations

import re
from datetime import timedelta
from urllib.parse import urlsplit

import pytest
from tools.image import project

#: What is built here and needs no tag of its own.
OURS = "angzarr-workers"
SERVERS = {"redis", "postgresql", "rabbitmq", "localstack", "kafka", "pubsub"}
ONE_SHOT = "migrations"
LONG_RUNNING = {"worker", "analysis", "beat", "dashboard"}
#: Each server's port within the project's network.
PORTS = {"redis": 6379, "postgresql": 5432, "rabbitmq": 5672}
#: Seconds in which a worker and the dashboard have ended, by docs/how-to/deploy.md.
LONGEST_END = 17.5


@pytest.fixture(scope="session")
def services():
    return project.loaded()["services"]


def seconds(span: str) -> float:
    """Read a span as Go writes it, like 1m30s."""
    parts = dict(re.findall(r"([\d.]+)([hms])", span))
    units = {"h": "hours", "m": "minutes", "s": "seconds"}
    return timedelta(**{units[unit]: float(n) for n, unit in parts.items()}).total_seconds()


def test_docker_compose_takes_it_with_all_profiles(services):
    assert set(services) == SERVERS | LONG_RUNNING | {ONE_SHOT}


def test_what_docker_compose_would_refuse_is_refused(tmp_path):
    """The control: else the test above could not fail."""
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(project.FILE.read_text().replace("read_only:", "readonly:", 1))
    project.loaded()
    with pytest.raises(project.Refused, match="readonly"):
        project.load(wrong)


def test_servers_start_without_the_app(services):
    """As `docker compose up --wait` and the tests start them."""
    for name in SERVERS:
        assert not services[name].get("profiles"), name
        assert not services[name].get("depends_on"), name


def test_every_image_is_pinned_to_a_version(services):
    for name, service in services.items():
        image, _, tag = service["image"].partition(":")
        if image != OURS:
            assert re.search(r"\d+\.\d+", tag), name


def test_only_this_machine_reaches_a_port(services):
    ports = [port for service in services.values() for port in service.get("ports", ())]
    assert ports
    assert {port["host_ip"] for port in ports} == {"127.0.0.1"}


@pytest.mark.parametrize("name", sorted(LONG_RUNNING | {ONE_SHOT}))
def test_our_services_are_shut_in(services, name):
    service = services[name]
    assert service["image"] == OURS
    assert service["build"]["context"] == str(project.CHECKOUT)
    assert service["profiles"] == ["app"]
    assert service["read_only"] is True
    assert [place.split(":")[0] for place in service["tmpfs"]] == ["/tmp"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert {volume["read_only"] for volume in service["volumes"]} == {True}
    assert not {"privileged", "cap_add", "user", "pid", "network_mode"} & set(service)


@pytest.mark.parametrize("name", sorted(LONG_RUNNING))
def test_each_has_the_time_that_it_needs_to_end(services, name):
    assert seconds(services[name]["stop_grace_period"]) > LONGEST_END


@pytest.mark.parametrize("name", sorted(LONG_RUNNING))
def test_they_wait_for_servers_that_are_well_and_for_the_migrations(services, name):
    waits = {other: told["condition"] for other, told in services[name]["depends_on"].items()}
    assert waits.pop(ONE_SHOT) == "service_completed_successfully"
    assert waits == dict.fromkeys(PORTS, "service_healthy")
    for server in PORTS:
        assert services[server]["healthcheck"]["test"]


def test_they_use_the_servers_that_they_wait_for(services):
    for name in LONG_RUNNING:
        for value in services[name]["environment"].values():
            if value and "://" in value:
                address = urlsplit(value)
                assert address.port == PORTS[address.hostname], value
