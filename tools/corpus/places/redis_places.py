"""Redis: servers of this run's own, and one that says the same thing to everybody."""

from __future__ import annotations

import atexit
import functools
import socket
import threading
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from tools.corpus.normal import show_port
from tools.corpus.places import folders
from tools.redis_servers import PrivateRedis

LOOPBACK = "127.0.0.1"
USERS = ("user reader on >right ~* +get +ping", "user shop on >right ~* +@all")


@functools.cache
def server() -> PrivateRedis:
    """A server with the users reader and shop, whose passwords are 'right'."""
    made = PrivateRedis(folders.fresh() / "redis", users=USERS)
    made.start()
    atexit.register(made.__exit__)
    show_port(made.port, 6379)
    return made


@functools.cache
def locked() -> PrivateRedis:
    """A server that wants a password of everybody."""
    folder = folders.fresh() / "redis"
    made = PrivateRedis(folder, options={"maxmemory": "1mb"})
    made.start()
    atexit.register(made.__exit__)
    show_port(made.port, 6380)
    return made


def client(url: str, **options: Any) -> redis.Redis[Any]:
    """Return a client that tries once, as the letter's error is what counts."""
    once = {"retry": Retry(NoBackoff(), 0), "socket_timeout": 30, "socket_connect_timeout": 30}
    return redis.Redis.from_url(url, **(once | options))


def saying(answer: bytes) -> str:
    """Return the address of a server that answers so whatever it is asked but for its greeting."""
    listening = socket.socket()
    listening.bind((LOOPBACK, 0))
    listening.listen()
    port: int = listening.getsockname()[1]
    show_port(port, 6381)
    threading.Thread(target=_say, args=(listening, answer), daemon=True).start()
    return f"redis://{LOOPBACK}:{port}/0"


def _say(listening: socket.socket, answer: bytes) -> None:
    with listening, listening.accept()[0] as connection:
        while asked := connection.recv(4096):
            commands = asked.count(b"\r\n*") + 1
            connection.sendall((b"+OK\r\n" if b"CLIENT" in asked else answer) * commands)
