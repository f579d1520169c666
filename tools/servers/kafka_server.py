"""A real Kafka broker, one node that is broker and controller (KRaft), from its published jars."""

from __future__ import annotations

import base64
import struct
import uuid
from pathlib import Path

import downloads
import packages
import probes
from processes import Process, spawn
from server import LOOPBACK, Place, Server

POM = Path(__file__).with_name("kafka-broker.xml")
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
SMALL = ["-Xmx512m", "-Xms128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"


def _jars() -> Path:
    return downloads.once("kafka", POM.read_bytes(), _fill) / "libs"


def _fill(folder: Path) -> None:
    maven = [packages.find("mvn"), "--batch-mode", "--quiet", "--file", POM]
    downloads.run([*maven, PLUGIN, f"-DoutputDirectory={folder / 'libs'}"], cwd=folder)


def _install() -> None:
    packages.ensure("java", "openjdk-17-jre-headless")
    packages.ensure("mvn", "maven")
    _jars()


def _launch(place: Place) -> list[Process]:
    properties = place.folder / "server.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in _settings(place).items()))
    java = [packages.find("java"), *SMALL, QUIET, "-cp", f"{_jars()}/*"]
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    downloads.run(
        [
            *(*java, "kafka.tools.StorageTool", "format", "--ignore-formatted"),
            *(f"--cluster-id={cluster}", "--config", properties),  # may begin with a dash
        ]
    )
    return [spawn([*java, "kafka.Kafka", properties], log=place.log)]


def _settings(place: Place) -> dict[str, str | int]:
    broker, controller = place.ports
    alone = dict.fromkeys(
        [
            "offsets.topic.replication.factor",
            "transaction.state.log.replication.factor",
            "transaction.state.log.min.isr",
            "share.coordinator.state.topic.replication.factor",
            "share.coordinator.state.topic.min.isr",
        ],
        1,
    )
    return alone | {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{LOOPBACK}:{controller}",
        "listeners": f"PLAINTEXT://{LOOPBACK}:{broker},CONTROLLER://{LOOPBACK}:{controller}",
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{broker}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(place.folder / "data"),
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.num.partitions": 4,
        "group.initial.rebalance.delay.ms": 0,  # the first member of a group need not wait 3 s
    }


def _ready(place: Place) -> bool:
    """Ask for the cluster's brokers (Metadata v4): one that has joined counts itself."""
    body = struct.pack(">hhihib", 3, 4, 1, -1, 0, 0)
    answer = probes.ask(place.port, struct.pack(">i", len(body)) + body, 16)
    return len(answer) == 16 and struct.unpack(">i", answer[12:])[0] > 0


SERVER = Server(
    name="kafka",
    addresses=lambda place: {"ANGZARR_TEST_KAFKA_BROKERS": f"{LOOPBACK}:{place.port}"},
    ports=2,
    install=_install,
    launch=_launch,
    ready=_ready,
    patience=60,
    compose_ports=("ANGZARR_KAFKA_PORT", ""),
)
