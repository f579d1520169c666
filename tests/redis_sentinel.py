"""A Redis master with a replica and the sentinels that watch them, for tests of failovers."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

import redis

from redis_servers import LOOPBACK, PrivateRedis, wait_until

#: The master's name, to be given as transport option `master_name`.
MASTER = "main"
#: Milliseconds without an answer after which a sentinel calls a server down.
DOWN_AFTER = 1500
#: Milliseconds, all shorter than usual, but for the tilt: a sentinel does not turn away for 30 s
#: when this machine stood still for two.
HASTE = {
    # Well below DOWN_AFTER, else a living server is called down at times; a replica that was heard
    # of five periods ago cannot be promoted, and in need each is asked once a second.
    "PING-PERIOD": "400",
    "INFO-PERIOD": "500",  # nor one that told nothing of itself for three of these
    # An old master may do as it likes for four periods. In less than two seconds the sentinels
    # may not have heard of a promotion, and would undo it.
    "PUBLISH-PERIOD": "700",
    "ASK-PERIOD": "200",
    "TILT-TRIGGER": "20000",
    "TILT-PERIOD": "1000",
}


class PrivateSentinel:
    """One master, one replica and *sentinels* (1 or 3), each a process of its own."""

    def __init__(self, folder: Path, *, sentinels: int = 1, durable: bool = False) -> None:
        self._stack = ExitStack()
        self.servers = [PrivateRedis(folder / "a", durable=durable)]
        self.servers.append(PrivateRedis(folder / "b", durable=durable, replica_of=self.servers[0]))
        self.sentinels = [_Sentinel(folder / f"s{n}") for n in range(sentinels)]

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for server in self.servers:
                stack.enter_context(server)
            self._wait_for_the_link(self.servers[1])
            for sentinel in self.sentinels:
                sentinel.watch(self.servers[0].port, quorum=len(self.sentinels) // 2 + 1)
                stack.enter_context(sentinel)
            for sentinel in self.sentinels:
                wait_until(lambda one=sentinel: self._knows_all(one), "the sentinels to meet")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def url(self) -> str:
        """The sentinels' addresses as kombu writes them; the master's is not among them."""
        return ";".join(f"sentinel://{LOOPBACK}:{one.port}" for one in self.sentinels)

    @property
    def master(self) -> PrivateRedis:
        """The server that the first sentinel calls master."""
        _, port = self.sentinels[0].client().sentinel_get_master_addr_by_name(MASTER)
        return next(server for server in self.servers if server.port == port)

    def wait_for_the_replica(self) -> None:
        """Wait until the replica has everything that the master has acknowledged."""
        wait_until(lambda: self.master.client().wait(1, 1000) == 1, "the replica to follow")

    def failover(self) -> PrivateRedis:
        """Make the replica the master, and return it once the old one follows it.

        For a second or two both are masters; what is written to the old one then is lost.
        """
        before = self.master
        self.wait_for_the_replica()
        # Refused while the sentinel has not heard of the replica for a moment.
        wait_until(
            lambda: self.sentinels[0].client().execute_command("SENTINEL", "FAILOVER", MASTER),
            "a sentinel to begin the failover",
        )
        after = self._wait_for_another_than(before)
        wait_until(lambda: before.client().role()[0] == b"slave", "the old master to obey")
        return after

    def kill_master(self) -> PrivateRedis:
        """SIGKILL the master and return the other server once it is the master."""
        before = self.master
        before.kill()
        return self._wait_for_another_than(before)

    def _wait_for_another_than(self, before: PrivateRedis) -> PrivateRedis:
        wait_until(lambda: self.master is not before, "another master")
        after = self.master
        wait_until(lambda: after.client().role()[0] == b"master", "the new master to serve")
        return after

    def _wait_for_the_link(self, replica: PrivateRedis) -> None:
        client = replica.client()
        wait_until(
            lambda: client.info("replication")["master_link_status"] == "up", "the replica's link"
        )

    def _knows_all(self, sentinel: _Sentinel) -> bool:
        state: dict[str, Any] = sentinel.client().sentinel_master(MASTER)
        others = len(self.sentinels) - 1
        return bool(state["num-slaves"] == 1 and state["num-other-sentinels"] == others)


#: What a server before Redis 7 answers to SENTINEL DEBUG.
TooOld = redis.ResponseError


class _Sentinel(PrivateRedis):
    """A sentinel process; its configuration file is its own to rewrite."""

    def watch(self, port: int, *, quorum: int) -> None:
        self._watched, self._quorum = port, quorum

    def _launch(self, command: list[str], port: int) -> bool:
        return super()._launch([*command, "--sentinel"], port)

    def _answers(self) -> bool:
        if not super()._answers():
            return False
        pace = [word for pair in HASTE.items() for word in pair]
        with redis.Redis(unix_socket_path=str(self.socket)) as client, suppress(TooOld):
            client.execute_command("SENTINEL", "DEBUG", *pace)
        return True

    def _settings(self, port: int) -> dict[str, str]:
        return {
            "port": str(port),
            "bind": LOOPBACK,
            "dir": f'"{self.folder}"',
            "unixsocket": f'"{self.socket}"',
            "sentinel monitor": f"{MASTER} {LOOPBACK} {self._watched} {self._quorum}",
            "sentinel down-after-milliseconds": f"{MASTER} {DOWN_AFTER}",
            "sentinel failover-timeout": f"{MASTER} 3000",
        }
