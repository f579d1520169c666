"""Servers of a run's own, which it may kill and start again, and the proxies before them.

Everything is on 127.0.0.1, on free ports, with its data in the run's folder; SQS alone is the one
of the tests, which keeps nothing when it is killed. Workers reach servers
by way of proxies only; the publisher and what looks at the end do not.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import boto3
import httpx
import redis

from addresses import VARIABLES, addresses
from chaos.fact_check import FactsDatabase
from chaos.lanes import LanesDatabase
from postgresql_servers import PrivatePostgreSQL
from redis_servers import PrivateRedis, free_port
from tcp_proxy import LossyProxy

sys.path.append(str(Path(__file__).resolve().parents[1] / "servers"))
import postgresql_server
import processes
import rabbitmq_server
import redis_server
from server import CannotStart, Place

#: Queue lengths are to be those of now, not those of the last tick (5 s); what was sent to a
#: connection whose other end is gone is to come back within a run, and later than a frozen worker.
rabbitmq_server.ADVANCED = (
    "[{rabbit,[{dead_letter_worker_publisher_confirm_timeout,2000},"
    "{quorum_tick_interval,500},{collect_statistics_interval,500},{heartbeat,10}]}].\n"
)
#: Longest wait for RabbitMQ, in seconds.
PATIENCE = 90


#: Of an account on SQS that is nobody's.
SECRET, REGION = "test", "us-east-1"


class PrivateRabbit:
    """A RabbitMQ node with its data in *folder*; durable queues outlive `kill`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._place = Place(folder, tuple(free_port() for _ in range(4)))
        self._processes: list[Any] = []

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self._place.port}//"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()  # its data go with the folder

    def start(self) -> None:
        """Start it and wait until it answers; raises CannotStart."""
        self._processes = rabbitmq_server.SERVER.launch(self._place)
        deadline = time.monotonic() + PATIENCE
        while not rabbitmq_server.SERVER.ready(self._place):
            if time.monotonic() > deadline:
                raise CannotStart(f"RabbitMQ was not ready in {PATIENCE} s; see {self._place.log}")
            time.sleep(0.1)

    def kill(self) -> None:
        """SIGKILL it."""
        processes.kill(self._processes)

    def command(self, *words: str) -> None:
        """Run ``rabbitmqctl`` with *words*; raises CalledProcessError."""
        subprocess.run(
            ["/usr/lib/rabbitmq/bin/rabbitmqctl", "--quiet", *words],
            env={**os.environ, **rabbitmq_server.environment(self._place)},
            capture_output=True, timeout=PATIENCE, check=True,
        )  # fmt: skip

    def messages(self) -> dict[str, int]:
        """Return how many messages each durable queue has, ready and unacknowledged.

        Of now: the statistics would be up to 5 s old, and have no numbers at all after a restart.
        """
        url = f"http://127.0.0.1:{self._place.ports[2]}/api/queues"
        now = {"disable_stats": "true", "enable_queue_totals": "true"}
        with httpx.Client(trust_env=False, timeout=10, auth=("guest", "guest")) as client:
            queues = client.get(url, params=now).raise_for_status().json()
        return {
            one["name"]: one["messages"]
            for one in queues
            if one["durable"] and not one["auto_delete"] and not one["exclusive"]
        }


class SharedQueues:
    """SQS at the address of the tests, in an account of this run's own."""

    def __init__(self) -> None:
        self._account = f"{os.getpid():012d}"
        address = addresses().get(VARIABLES["localstack"])
        if not address:
            msg = f"no SQS: run `make servers-up`, or give its address in {VARIABLES['localstack']}"
            raise CannotStart(msg)
        at = urlsplit(address)
        self.host, self.port = str(at.hostname), int(at.port or 0)
        self._client = boto3.client(
            "sqs", endpoint_url=address, region_name=REGION,
            aws_access_key_id=self._account, aws_secret_access_key=SECRET,
        )  # fmt: skip

    @property
    def login(self) -> dict[str, str]:
        """The variables by which clients of this account log in."""
        return {
            "AWS_ACCESS_KEY_ID": self._account,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": REGION,
        }

    @property
    def url(self) -> str:
        return f"sqs://{self._account}:{SECRET}@{self.host}:{self.port}//"

    def messages(self) -> dict[str, int]:
        """Return how many messages each queue has: ready, in hand and delayed."""
        names: Any = [
            f"ApproximateNumberOfMessages{which}" for which in ("", "NotVisible", "Delayed")
        ]
        found = {}
        for address in self._client.list_queues().get("QueueUrls", ()):
            told = self._client.get_queue_attributes(QueueUrl=address, AttributeNames=names)
            found[address.rpartition("/")[2]] = sum(map(int, told["Attributes"].values()))
        return found


class Servers:
    """Redis, RabbitMQ, SQS, and a proxy for each way that a worker takes to them."""

    def __init__(self, folder: Path, broker: str) -> None:
        self.broker = broker
        self.redis = PrivateRedis(folder / "redis", durable=True)
        self.rabbit = PrivateRabbit(folder / "rabbitmq")
        self.queues = SharedQueues() if broker == "sqs" else None
        self._folder = folder
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for server in (redis_server.SERVER, rabbitmq_server.SERVER, postgresql_server.SERVER):
            server.install()
        self.postgresql = PrivatePostgreSQL(self._folder / "postgresql")
        with ExitStack() as stack:
            stack.enter_context(self.redis)
            stack.enter_context(self.rabbit)
            stack.enter_context(self.postgresql)
            self.lanes = LanesDatabase(self.postgresql.url)
            self.facts = FactsDatabase(self.postgresql.url)
            to_redis, to_rabbit = urlsplit(self.redis.url), urlsplit(self.rabbit.url)
            self.store = stack.enter_context(LossyProxy(str(to_redis.hostname), self.redis.port))
            rabbit = str(to_rabbit.hostname), int(to_rabbit.port or 0)
            tasks = rabbit if self.queues is None else (self.queues.host, self.queues.port)
            self.letters = stack.enter_context(LossyProxy(*rabbit))
            self.tasks = stack.enter_context(LossyProxy(*tasks))
            self.order = stack.enter_context(LossyProxy("127.0.0.1", self.postgresql.port))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def broker_url(self) -> str:
        """The broker's own address."""
        if self.queues is not None:
            return self.queues.url
        return self.redis.url if self.broker == "redis" else self.rabbit.url

    def urls(self, *, proxied: bool) -> dict[str, str]:
        """Return the addresses as settings of the app."""
        store, tasks, letters = self.redis.url, self.broker_url, self.rabbit.url
        order = self.postgresql.url
        if proxied:
            order = _through(self.order, order)
            store, letters = _through(self.store, store), _through(self.letters, letters)
            tasks = store if self.broker == "redis" else _through(self.tasks, tasks)
        return {
            **({} if self.queues is None else self.queues.login),
            "CELERY_BROKER_URL": tasks,
            "ANGZARR_STORE": store,
            "ANGZARR_DLQ__BACKEND": "amqp",
            "ANGZARR_DLQ__AMQP_URL": letters,
            "ANGZARR_ORDERING__URL": order,
            "ANGZARR_FACTS__URL": order,
        }

    def client(self) -> redis.Redis[Any]:
        """Return a client of the store that sees no fault but its absence."""
        return self.redis.client(decode_responses=False)


def _through(proxy: LossyProxy, url: str) -> str:
    parts = urlsplit(url)
    login = f"{parts.username}:{parts.password}@" if parts.username else ""
    return parts._replace(netloc=f"{login}127.0.0.1:{proxy.port}").geturl()
