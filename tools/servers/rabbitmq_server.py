"""RabbitMQ with an epmd of its own, everything private and on the loopback interface."""

from __future__ import annotations

import os
import time
from pathlib import Path

import packages
import probes
from processes import Process, adopt, alive, kill, spawn
from server import LOOPBACK, CannotStart, Place, Server

#: The wrappers in /usr/sbin change user and do not reach a private node.
BINARIES = "/usr/lib/rabbitmq/bin"
#: So that a letter to an exchange that is missing is tried again soon, not after three minutes.
ADVANCED = "[{rabbit,[{dead_letter_worker_publisher_confirm_timeout,2000}]}].\n"


def _launch(place: Place) -> list[Process]:
    variables = environment(place)
    _write_configuration(place)
    pid_file = place.folder / "rabbitmq.pid"
    pid_file.unlink(missing_ok=True)
    epmd = spawn(
        [packages.find("epmd"), "-port", str(place.ports[3]), "-address", LOOPBACK],
        log=place.folder / "epmd.log",
        env=variables,
    )
    script = spawn([packages.find("rabbitmq-server", BINARIES)], log=place.log, env=variables)
    try:
        return [_broker(pid_file, script), script, epmd]
    except CannotStart:
        kill([script, epmd])
        raise


def _broker(pid_file: Path, script: Process) -> Process:
    """Wait for the pid file: the broker is a child of the start script and gets its own signal."""
    deadline = time.monotonic() + 30
    while alive(script) and time.monotonic() < deadline:
        text = pid_file.read_text().strip() if pid_file.exists() else ""
        if text:
            return adopt(int(text))
        time.sleep(0.05)
    raise CannotStart("RabbitMQ's start script wrote no pid file; see its server.log")


def environment(place: Place) -> dict[str, str]:
    """Return what the node runs with, and `rabbitmqctl` needs to reach it."""
    folder = place.folder
    amqp, dist, _management, epmd = map(str, place.ports)
    return {
        "HOME": str(folder),
        "RABBITMQ_NODENAME": f"angzarr{amqp}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": LOOPBACK,
        "RABBITMQ_NODE_PORT": amqp,
        "RABBITMQ_DIST_PORT": dist,
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced.config"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
        "RABBITMQ_PID_FILE": str(folder / "rabbitmq.pid"),
        "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
        "ERL_EPMD_PORT": epmd,
        "ERL_EPMD_ADDRESS": LOOPBACK,
        # Else the port between nodes listens on every interface.
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
    }


def _write_configuration(place: Place) -> None:
    lines = [
        f"management.tcp.ip = {LOOPBACK}",
        f"management.tcp.port = {place.ports[2]}",
        "disk_free_limit.absolute = 50MB",
        "log.console = false",
    ]
    (place.folder / "rabbitmq.conf").write_text("\n".join(lines) + "\n")
    (place.folder / "advanced.config").write_text(ADVANCED)
    (place.folder / "enabled_plugins").write_text("[rabbitmq_management].\n")


def _ready(place: Place) -> bool:
    """Ask for a handshake frame (type 1) and for the management API, which comes up last."""
    return probes.ask(place.port, b"AMQP\0\0\x09\x01", 1) == b"\x01" and probes.http(
        f"http://{LOOPBACK}:{place.ports[2]}/api/overview", "guest", "guest"
    )


def _install() -> None:
    packages.ensure("rabbitmq-server", "rabbitmq-server", BINARIES)
    if not os.access(packages.find("epmd"), os.X_OK):
        raise CannotStart("RabbitMQ needs epmd, which comes with Debian's erlang-base")


SERVER = Server(
    name="rabbitmq",
    addresses=lambda place: {
        "ANGZARR_TEST_AMQP_URL": f"amqp://guest:guest@{LOOPBACK}:{place.port}/%2F",
        "ANGZARR_TEST_AMQP_MANAGEMENT_URL": f"http://guest:guest@{LOOPBACK}:{place.ports[2]}",
    },
    ports=4,
    install=_install,
    launch=_launch,
    ready=_ready,
    patience=90,
    compose_ports=("ANGZARR_RABBITMQ_PORT", "", "ANGZARR_RABBITMQ_MANAGEMENT_PORT", ""),
)
