"""Redis servers of a test's own, which it may kill, stop and start again on the same port.

`with PrivateRedis(tmp_path / "redis") as server:` is all a test needs. Without the binary a test
is skipped on a laptop and fails in CI, as with the servers of tests/conftest.py.
"""

from __future__ import annotations

import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

import polling
from certificates import Certificates
from polling import PATIENCE
from programs import require

LOOPBACK = "127.0.0.1"
#: Below the ports of outgoing connections (32768 and up) and those of tools/servers (20000 and
#: up), so that nobody takes the port while its server is down; a cluster's bus needs port + 10000.
PORTS = range(11_000, 20_000)


class PrivateRedis:
    """A redis-server process on 127.0.0.1, with its data in *folder*.

    *durable* writes every command to disk before it is answered, so that `kill` loses nothing;
    else the server comes back empty. *tls* leaves no port without TLS. *users* are lines of an
    ACL file (`user jo on >secret ~* +@all`); the default user stays without a password, for
    `client()`. *options* are further lines of redis.conf.
    """

    def __init__(
        self,
        folder: Path,
        *,
        durable: bool = False,
        tls: Certificates | None = None,
        users: Sequence[str] = (),
        cluster: bool = False,
        replica_of: PrivateRedis | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.durable, self.tls, self.users, self.cluster = durable, tls, users, cluster
        self.replica_of, self.options = replica_of, dict(options or {})
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None
        self._clients: dict[str, redis.Redis[Any]] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients.values():
            client.close()
        self.kill()  # nobody wants its data, and while it writes its first AOF it ends by no other

    # -- where it is -------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The address of database 0 for the default user."""
        return self.url_for()

    def url_for(self, *, user: str = "", password: str = "", database: int = 0) -> str:
        """Return the address for *user*; with TLS its scheme is `rediss`, without any option."""
        login = f"{quote(user)}:{quote(password)}@" if user or password else ""
        scheme = "rediss" if self.tls else "redis"
        return f"{scheme}://{login}{LOOPBACK}:{self.port}/{database}"

    @property
    def socket(self) -> Path:
        """The unix socket on which it answers as well, of any database and always without TLS."""
        return self.folder / "s"

    @property
    def log(self) -> str:
        return (self.folder / "server.log").read_text(errors="replace")

    def client(self, *, database: int = 0, **options: Any) -> redis.Redis[Any]:
        """Return the default user's client with these options; it never tries twice.

        The same options give the same client; it is closed with the server.
        """
        key = repr((database, sorted(options.items())))
        if key not in self._clients:
            trust = {"ssl_ca_certs": str(self.tls.authority)} if self.tls else {}
            once = {"socket_timeout": PATIENCE, "retry": Retry(NoBackoff(), 0)}
            url = self.url_for(database=database)
            self._clients[key] = redis.Redis.from_url(url, **(once | trust | options))
        return self._clients[key]

    # -- its life ----------------------------------------------------------------------------

    def start(self) -> None:
        """Start it, the first time on a free port, later on the same one with the same data."""
        program = require("redis-server", "redis-server")
        self.folder.mkdir(parents=True, exist_ok=True)
        for _ in range(5):  # another process may be quicker to take the port
            port = self.port or free_port(bus=self.cluster)
            if self._launch([program, str(self._configuration(port))], port):
                self.port = port
                return
        pytest.fail(f"no Redis on port {port}: {self.log[-2000:]}", pytrace=False)

    def kill(self) -> None:
        """SIGKILL it and wait until it is gone: nothing is said to clients, nothing is saved."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM it and wait until it is gone; it is killed when that takes too long."""
        self._end(signal.SIGTERM)

    def restart(self) -> None:
        """Kill it and start it again: same port, and same data if it is durable."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """Freeze it: connections stay open, and nobody answers until `resume`."""
        if self.process:
            self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after `pause`."""
        if self.process:
            self.process.send_signal(signal.SIGCONT)

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def _launch(self, command: list[str], port: int) -> bool:
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and self.process.poll() is None:
            if self._answers():
                return True
            time.sleep(0.005)
        self.kill()
        return False

    def _answers(self) -> bool:
        """Ask through the unix socket, which nobody else can listen on; loading is no answer."""
        with socket.socket(socket.AF_UNIX) as probe, suppress(OSError):
            probe.settimeout(1)
            probe.connect(str(self.socket))
            probe.sendall(b"PING\r\n")
            return probe.recv(5) == b"+PONG"
        return False

    def _end(self, number: signal.Signals) -> None:
        if self.process is None:
            return
        self.process.send_signal(number)
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(PATIENCE)
        self.process = None

    def _configuration(self, port: int) -> Path:
        file = self.folder / "redis.conf"
        file.write_text("".join(f"{key} {value}\n" for key, value in self._settings(port).items()))
        return file

    def _settings(self, port: int) -> dict[str, str]:
        settings = {
            "port": str(port),
            "bind": LOOPBACK,
            "dir": f'"{self.folder}"',
            "unixsocket": f'"{self.socket}"',
            "save": '""',
            "appendonly": "yes" if self.durable else "no",
            "appendfsync": "always",
            "repl-diskless-sync-delay": "0",  # replicas are there at once
            "shutdown-timeout": "0",  # and are not waited for at the end (since Redis 7)
        }
        if self.tls:
            settings |= {
                "port": "0",
                "tls-port": str(port),
                "tls-cert-file": f'"{self.tls.certificate}"',
                "tls-key-file": f'"{self.tls.key}"',
                "tls-ca-cert-file": f'"{self.tls.authority}"',
                "tls-auth-clients": "no",
            }
        if self.users:
            (self.folder / "users.acl").write_text("\n".join(self.users) + "\n")
            settings["aclfile"] = f'"{self.folder / "users.acl"}"'
        if self.cluster:
            settings["cluster-enabled"] = "yes"
        if self.replica_of:
            settings["replicaof"] = f"{LOOPBACK} {self.replica_of.port}"
        return settings | self.options


def free_port(*, bus: bool = False) -> int:
    """Return a port of `PORTS` nobody listens on; with *bus* the one 10000 above is free too."""
    for _ in range(1000):
        port = random.choice(PORTS)
        if _is_free(port) and (not bus or _is_free(port + 10_000)):
            return port
    raise RuntimeError(f"no free port between {PORTS.start} and {PORTS.stop} on {LOOPBACK}")


def wait_until(truth: Callable[[], object], what: str) -> Any:
    """Poll until *truth* holds and return it; an unreachable server is not yet the truth."""

    def held() -> object:
        with suppress(redis.RedisError):
            return truth()
        return None

    return polling.wait_until(held, what)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):
            probe.bind((LOOPBACK, port))
            return True
    return False
