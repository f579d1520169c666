"""Where the servers of the tests are, and whether a test may go without them."""

from __future__ import annotations

import json
import os
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
STATE = CHECKOUT / "build" / "servers" / "state.json"

#: Server → the variable with its address (tools/servers writes the same names).
VARIABLES = {
    "redis": "ANGZARR_TEST_REDIS_URL",
    "postgresql": "ANGZARR_TEST_POSTGRESQL_URL",
    "rabbitmq": "ANGZARR_TEST_AMQP_URL",
    "kafka": "ANGZARR_TEST_KAFKA_BROKERS",
    "localstack": "ANGZARR_TEST_SQS_ENDPOINT",
    "pubsub": "ANGZARR_TEST_PUBSUB_EMULATOR",
}
MANAGEMENT = "ANGZARR_TEST_AMQP_MANAGEMENT_URL"


def addresses() -> dict[str, str]:
    """Return the variables of all known addresses; one in the environment wins."""
    running = json.loads(STATE.read_text()) if STATE.exists() else {}
    written = {key: value for one in running.values() for key, value in one["addresses"].items()}
    return written | {key: value for key, value in os.environ.items() if value}


def servers_required() -> bool:
    """True if a missing server is a failure (CI) and not just a skip (a laptop)."""
    return os.environ.get("CI") == "true" or os.environ.get("ANGZARR_REQUIRE_SERVERS") == "1"
