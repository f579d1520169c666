"""All servers: brought up side by side, and taken down."""

from __future__ import annotations

import os
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import docker
import kafka_server
import localstack_server
import ports
import postgresql_server
import processes
import pubsub_server
import rabbitmq_server
import redis_server
import state
from server import CHECKOUT, HOME, CannotStart, Place, Server
from state import Running

SERVERS = {
    module.SERVER.name: module.SERVER
    for module in (
        redis_server,
        postgresql_server,
        rabbitmq_server,
        localstack_server,
        kafka_server,
        pubsub_server,
    )
}
#: A broker flushes its log and a JVM takes its time; after that, SIGKILL.
STOP_PATIENCE = 20.0


def up() -> dict[str, str]:
    """Start what does not run yet and return, by server, why one could not be had."""
    with state.locked():
        running = _forget_the_dead()
        missing = [
            server
            for name, server in SERVERS.items()
            if name not in running and not os.environ.get(server.variable)
        ]
        return _start(missing)


def _forget_the_dead() -> set[str]:
    """End what is left of servers that no longer run and return the names of the others."""
    everything = state.read()
    running = {name: one for name, one in everything.items() if _runs(one)}
    for name in everything.keys() - running.keys():
        processes.kill(everything[name].processes)
    state.write(running)
    return set(running)


def down(names: set[str] | None = None) -> None:
    """Stop what was started here, all or *names*, and forget it."""
    with state.locked():
        running = state.read()
        leaving = [one for one in running.values() if names is None or one.name in names]
        containers = [one.name for one in leaving if one.source == "docker"]
        if containers:
            docker.down(containers)
        with ThreadPoolExecutor(len(SERVERS)) as pool:
            list(pool.map(lambda one: processes.stop(one.processes, STOP_PATIENCE), leaving))
        gone = {one.name for one in leaving}
        for name in gone:
            _drop_outside(HOME / name)
        state.write({name: one for name, one in running.items() if name not in gone})


def environment() -> dict[str, str]:
    """Return the variables that tell tests where the servers are; those given win over ours."""
    addresses: dict[str, str] = {}
    for name, server in SERVERS.items():
        given = {key: os.environ[key] for key in server.variables if os.environ.get(key)}
        one = state.read().get(name)
        addresses |= given if server.variable in given else one.addresses if one else {}
    return addresses


def _start(missing: list[Server]) -> dict[str, str]:
    numbers = ports.choose([server.ports for server in missing], CHECKOUT)
    places = [Place(HOME / server.name, own) for server, own in zip(missing, numbers, strict=True)]
    if missing and docker.answers():
        try:
            return _start_containers(missing, places)
        except CannotStart as problem:
            print(f"  {problem}; using packages instead", file=sys.stderr)
    with ThreadPoolExecutor(len(SERVERS)) as pool:
        problems = list(pool.map(_start_package, missing, places))
    return {
        server.name: problem
        for server, problem in zip(missing, problems, strict=True)
        if problem is not None
    }


def _start_containers(missing: list[Server], places: list[Place]) -> dict[str, str]:
    docker.up(missing, places)
    for server, place in zip(missing, places, strict=True):
        state.add(Running(server.name, "docker", server.addresses(place), place.ports))
    return {}


def _start_package(server: Server, place: Place) -> str | None:
    """Install and start one server; return why that failed, or None."""
    began = time.monotonic()
    try:
        server.install()
        installed = time.monotonic()
        shutil.rmtree(place.folder, ignore_errors=True)  # what an earlier start left
        state.add(_launch(server, place))
    except (CannotStart, OSError) as problem:
        return str(problem)
    ready = time.monotonic()
    took = f"installed in {installed - began:.1f} s, ready in {ready - installed:.1f} s"
    print(f"  {server.name}: {took}", flush=True)
    return None


def _drop_outside(folder: Path) -> None:
    """Remove data that had to lie outside the checkout; a link in *folder* leads to them."""
    for entry in folder.iterdir() if folder.exists() else ():
        if entry.is_symlink():
            shutil.rmtree(entry.resolve(), ignore_errors=True)
            entry.unlink()


def _launch(server: Server, place: Place) -> Running:
    place.folder.mkdir(parents=True, exist_ok=True)
    started = server.launch(place)
    try:
        _await(server, place, started)
    except BaseException:
        processes.kill(started)
        raise
    return Running(server.name, "package", server.addresses(place), place.ports, started)


def _await(server: Server, place: Place, started: list[processes.Process]) -> None:
    deadline = time.monotonic() + server.patience
    while not server.ready(place):
        if not all(map(processes.alive, started)):
            raise CannotStart(f"{server.name} ended while starting; see {place.log}")
        if time.monotonic() > deadline:
            raise CannotStart(
                f"{server.name} was not ready in {server.patience:.0f} s; see {place.log}"
            )
        time.sleep(0.1)


def _runs(one: Running) -> bool:
    """Say whether it still runs; a process that is merely slow to answer does."""
    if one.source == "docker":
        return SERVERS[one.name].ready(Place(HOME / one.name, one.ports))
    return all(map(processes.alive, one.processes))
