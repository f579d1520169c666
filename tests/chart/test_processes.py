"""The containers' own arguments and environment, run as processes: they start, serve and end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest
import yaml

from chart.rendering import changed, containers, env, render, values_of
from polling import wait_until

APP = """
from angzarr import Angzarr

app = Angzarr("orders")

@app.task
def hello() -> None:
    pass
"""
SHA = "d2dfb1c0ffee0001d2dfb1c0ffee0001d2dfb1c0ffee0001d2dfb1c0ffee0001"


@pytest.fixture
def chart():
    """A release whose servers are files and memory; nothing else is changed."""
    values = changed(
        values_of("minimal"),
        app="shop_orders:app",
        config={
            "dlq": {"payloads": {"largest_opened": 3000000}},
            "dashboard": {"tokens": [{"name": "ada", "role": "viewer", "sha256": SHA}]},
        },
        dashboard={"enabled": True, "hosts": ["dlq.example.com"]},
        pools=[{"name": "default", "queues": ["celery"], "pool": "threads"}],
    )
    return render(values)


@pytest.fixture
def home(tmp_path, chart):
    (tmp_path / "shop_orders.py").write_text(APP)
    config = chart.one("ConfigMap", "-config")["data"]["angzarr.yaml"]
    assert yaml.safe_load(config)["dlq"]["payloads"]["largest_opened"] == 3_000_000
    (tmp_path / "angzarr.yaml").write_text(config)
    return tmp_path


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        return int(listener.getsockname()[1])


def command(container, port=None):
    """Return what a container runs, on a port of ours: those of pods are their own."""
    program, *rest = container["args"]
    if port is not None and "--port" in rest:
        rest[rest.index("--port") + 1] = str(port)
    if "--host" in rest:
        rest[rest.index("--host") + 1] = "127.0.0.1"
    return [str(Path(sys.executable).with_name(program)), *rest]


def environment(container, home, port=None):
    """Return a container's variables, with what its Secrets and volumes would hold."""
    secrets = {
        "CELERY_BROKER_URL": "memory://",
        "ANGZARR_LEDGER": f"sqlite:///{home}/ledger.db",
    }
    given = {
        name: value if isinstance(value, str) else secrets[name]
        for name, value in env(container).items()
    }
    given["ANGZARR_CONFIG"] = given["ANGZARR_CONFIG"].replace("/etc/angzarr", str(home))
    if port is not None and "ANGZARR_HEALTH__PORT" in given:
        given |= {"ANGZARR_HEALTH__PORT": str(port), "ANGZARR_HEALTH__HOST": "127.0.0.1"}
    kept = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(home)}
    return kept | given | {"ANGZARR_FACTS__URL": f"sqlite:///{home}/facts.db"}


@contextmanager
def running(container, home, port=None):
    log = (home / "log").open("w+b")
    process = subprocess.Popen(
        command(container, port),
        env=environment(container, home, port),
        cwd=home,
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    try:
        yield process, home / "log"
    finally:
        process.kill()
        process.wait()
        log.close()


def container_of(chart, kind, part):
    (found,) = chart.one(kind, part)["spec"]["template"]["spec"]["containers"]
    return found


def ended(container, home):
    return subprocess.run(
        command(container),
        env=environment(container, home),
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_the_migrations_make_the_tables_of_the_ledger(chart, home):
    found = ended(container_of(chart, "Job", "-migrations"), home)
    assert found.returncode == 0, found.stderr
    assert "ledger" in found.stdout
    assert (home / "ledger.db").exists()


def test_the_test_of_a_release_asks_commands_that_answer(chart, home):
    doctor, fleet = containers(chart.one("Pod", "-test"))
    seen = ended(doctor, home)
    assert seen.returncode in {0, 1}, seen.stderr  # findings, and no wrong use
    assert "Traceback" not in seen.stderr + seen.stdout
    assert ended(fleet, home).stdout == "no worker runs\n"


def test_the_dashboard_answers_the_kubelet_and_people_by_their_name(chart, home):
    container, port = container_of(chart, "Deployment", "-dashboard"), free_port()
    probe = container["livenessProbe"]["httpGet"]["path"]
    with running(container, home, port) as (process, log), httpx.Client(trust_env=False) as client:

        def asked(path, host):
            try:
                return client.get(f"http://127.0.0.1:{port}{path}", headers={"Host": host})
            except httpx.TransportError:
                assert process.poll() is None, log.read_text()
                return None

        wait_until(lambda: asked(probe, "10.1.2.3:8080") is not None, "it serves")
        assert asked(probe, "10.1.2.3:8080").status_code == 200
        assert asked("/", "dlq.example.com").status_code in {200, 303, 307}
        assert asked("/", "evil.example.com").status_code == 421
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_a_worker_of_a_pool_answers_its_probes_and_ends_with_sigterm(chart, home):
    container, port = container_of(chart, "Deployment", "worker-default"), free_port()
    probes = {container[one]["httpGet"]["path"] for one in container if one.endswith("Probe")}
    with running(container, home, port) as (process, log), httpx.Client(trust_env=False) as client:

        def ready():
            assert process.poll() is None, log.read_text()
            return "ready" in log.read_text()

        def holds(path):
            assert process.poll() is None, log.read_text()
            try:
                return client.get(f"http://127.0.0.1:{port}{path}").status_code == 200
            except httpx.TransportError:
                return False

        wait_until(ready, "the worker is ready")
        for path in probes:
            wait_until(lambda path=path: holds(path), f"{path} holds")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, log.read_text()
