"""The port that probes of a real worker ask: taken, inherited, and flooded."""

from __future__ import annotations

import os
import signal
import socket
import threading
from contextlib import ExitStack, suppress
from functools import partial
from itertools import cycle
from pathlib import Path

import pytest

from polling import wait_until
from system.test_health import HealthSite

pytestmark = [pytest.mark.server("redis"), pytest.mark.server("rabbitmq")]


@pytest.fixture
def health_site(make_site):
    return partial(make_site, make=HealthSite)


def test_a_flooded_port_holds_up_no_message(health_site, redis_url):
    site = health_site(broker=redis_url)
    garbage = (
        b"\x16\x03\x01" + os.urandom(200),
        b"GET /li",
        b"GET /metrics HTTP/1.1\r\nX: y\r\n",
        b"",
    )
    with site.probed_worker() as process, ExitStack() as held:
        over = threading.Event()

        def flood() -> None:
            for said in cycle(garbage):
                if over.is_set():
                    return
                with suppress(OSError):
                    client = held.enter_context(
                        socket.create_connection(("127.0.0.1", site.port), 1)
                    )
                    client.sendall(said)

        flooding = threading.Thread(target=flood)
        flooding.start()
        try:
            for n in range(30):
                site.app.publish(site.module.Thing(n=n), root=str(n))
            site.wait_ran("handle", 30)
            wait_until(lambda: site.probe("/livez")[0] == 200, "an answer amid them")
            threads = Path(f"/proc/{process.pid}/task")
            assert len(list(threads.iterdir())) < 60
        finally:
            over.set()
            flooding.join()
        wait_until(site.is_ready, "ready")


def test_a_worker_whose_port_is_taken_refuses_to_start(health_site):
    site = health_site()
    with site.probed_worker(), site.begun_worker() as second:
        assert second.wait(60) == 1
        assert f"health.port {site.port} on 127.0.0.1 cannot be listened on" in site.text()


def test_a_killed_workers_port_is_free_for_its_successor(health_site):
    site = health_site()
    with site.probed_worker() as process:
        os.kill(process.pid, signal.SIGKILL)  # its children end later
        with site.probed_worker() as second:
            assert second.poll() is None
