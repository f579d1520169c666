"""A Kafka of a test's own that speaks TLS, asks for a password, and lets each user do only a part.

`with PrivateKafka(tmp_path / "kafka") as server:` is all a test needs.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

from certificates import make_certificates
from private_server import PrivateServer, server_module
from programs import require

#: The users that may log in; `writer` may write to topics that begin with what it is told.
USERS = ("writer", "stranger")
PASSWORD = "s3cret-of-a-test"


class PrivateKafka(PrivateServer):
    """A broker on 127.0.0.1; `secure` is its port for TLS and SASL, `url` has no security."""

    def __init__(self, folder: Path) -> None:
        require("java", "openjdk-17-jre-headless")
        self.module = server_module("kafka_server")
        super().__init__(folder, self.module)
        self.certificates = make_certificates(folder / "certificates")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.secure = free.getsockname()[1]

    def start(self) -> None:
        """Start it with the plain listener for its owner and the secure one for users."""
        plain = self.module._settings
        self.module._settings = lambda place: plain(place) | self._security(place)
        try:
            super().start()
        finally:
            self.module._settings = plain

    def options(self, user: str, **changes: str) -> dict[str, str]:
        """Return what librdkafka needs to log in as *user*."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.certificates.authority),
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": PASSWORD,
        } | {name.replace("_", "."): value for name, value in changes.items()}

    def _security(self, place: Any) -> dict[str, str]:
        broker, controller = place.ports
        store = place.folder / "server.keystore.pem"
        files = self.certificates
        store.write_text(files.key.read_text() + files.certificate.read_text())
        logins = " ".join(f'user_{user}="{PASSWORD}"' for user in USERS)
        listeners = f"PLAINTEXT://127.0.0.1:{broker},SASL_SSL://127.0.0.1:{self.secure}"
        module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        return {
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL"
            ),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{module} {logins};",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "allow.everyone.if.no.acl.found": "false",
        }
