"""The server of probes: what it answers, and what nobody can do to it."""

from __future__ import annotations

import http.client
import json
import os
import socket
import threading

import pytest
from click.testing import CliRunner

from angzarr.adapters.http import health_server
from angzarr.adapters.http.health_server import MOST, HealthServer, HttpAnswer
from angzarr.cli.main import main
from angzarr.errors import ConfigurationError
from angzarr.runtime.health_report import Condition, Report
from polling import wait_until
from redis_servers import free_port


def broken() -> HttpAnswer:
    raise RuntimeError("postgresql://me:secret@host")


@pytest.fixture
def place():
    return "127.0.0.1", free_port()


@pytest.fixture
def answers():
    report = Report("live", [Condition("loop", holds=True, says="it moved 0.1 s ago")])
    return {"/livez": lambda: HttpAnswer(200, report.body()), "/broken": broken}


@pytest.fixture
def server(place, answers):
    made = HealthServer(place[0], place[1], answers)
    made.start()
    yield made
    made.end()


@pytest.fixture
def ask(server, place):
    def ask(method: str, path: str, **more) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(*place, timeout=60)
        connection.request(method, path, **more)
        answer = connection.getresponse()
        answer.told = json.loads(answer.read() or b"{}")
        connection.close()
        return answer

    return ask


def test_it_answers_what_it_knows(ask):
    answer = ask("GET", "/livez?verbose")
    assert (answer.status, answer.told["ok"]) == (200, True)
    assert answer.headers["Server"] == "angzarr"


def test_the_command_asks_it(server, place, answers):
    url = f"http://127.0.0.1:{place[1]}"
    result = CliRunner().invoke(main, ["health", "live", "--url", url])
    assert (result.exit_code, result.output) == (0, "live: loop: it moved 0.1 s ago\n")
    bad = Report("live", [Condition("loop", holds=False, says="it moved\x1b[31m 99 s ago")])
    answers["/livez"] = lambda: HttpAnswer(503, bad.body())
    result = CliRunner().invoke(main, ["health", "live", "--url", url])
    assert (result.exit_code, result.output) == (
        1, "Error: not live: loop: it moved\ufffd[31m 99 s ago\n"
    )  # fmt: skip
    for odd in (b"[]", b"\xff", b"null", b'{"conditions": 7}', b'{"probe": "ready", "ok": true}'):
        answers["/livez"] = lambda odd=odd: HttpAnswer(200, odd)
        result = CliRunner().invoke(main, ["health", "live", "--url", url])
        assert (result.exit_code, result.output[:15]) == (1, "Error: not live")


@pytest.mark.parametrize("path", ["/", "/livez/", "/metrics", "/../livez", "/" + "a" * 9000])
def test_nothing_else_is_served(ask, path):
    assert ask("GET", path).status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "BREW"])
def test_only_get_is_allowed(ask, method):
    answer = ask(method, "/livez", body=None)
    assert (answer.status, answer.headers["Allow"]) == (405, "GET")


def test_what_breaks_tells_nobody_why(ask):
    answer = ask("GET", "/broken")
    assert answer.status == 500
    assert "secret" not in str(answer.told)


@pytest.mark.parametrize(
    "said",
    [
        b"\x16\x03\x01\x02\x00\x01" + os.urandom(300) + b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /livez HTTP/9.9\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /livez HTTP/1.1\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(500)) + b"\r\n",
        b"GET /livez HTTP/1.1\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
        b"\r\n\r\n\r\n",
    ],
    ids=["tls", "no path", "version", "long path", "many headers", "long header", "empty lines"],
)
def test_garbage_ends_its_own_connection_only(ask, place, said):
    with socket.create_connection(place, timeout=60) as client:
        try:
            client.sendall(said)
            client.shutdown(socket.SHUT_WR)
            assert b" 200 " not in client.recv(4096)
        except OSError:  # it was cut off amid what it said
            pass
    assert ask("GET", "/livez").status == 200


def test_slow_clients_keep_nobody_out(ask, place):
    idle = [socket.create_connection(place, timeout=60) for _ in range(3 * MOST)]
    for client in idle:
        client.sendall(b"GET /li")
    try:
        assert ask("GET", "/livez").status == 200
        assert sum(one.name.startswith("Thread-") for one in threading.enumerate()) < 3 * MOST
    finally:
        for client in idle:
            client.close()


def test_a_request_has_its_time_however_it_drips(ask, place, monkeypatch):
    monkeypatch.setattr(health_server, "LONGEST", 0.3)
    with socket.create_connection(place, timeout=60) as client:
        client.settimeout(0.05)
        ended = False

        def drip() -> bool:
            nonlocal ended
            try:
                client.sendall(b"x")
                ended = client.recv(100) == b""
            except TimeoutError:
                return False
            except ConnectionError:
                ended = True
            return ended

        wait_until(drip, "the connection ended")
    assert ask("GET", "/livez").status == 200


def test_a_port_that_is_taken_is_refused_in_one_sentence(server, place, answers):
    with pytest.raises(ConfigurationError, match=f"health.port {place[1]} on 127.0.0.1 cannot be"):
        HealthServer(place[0], place[1], answers).start()


def test_a_host_that_is_not_here_is_refused(answers):
    with pytest.raises(ConfigurationError, match="cannot be listened on"):
        HealthServer("nobody.invalid", free_port(), answers).start()


def test_all_addresses_of_both_kinds_are_listened_on(answers):
    port = free_port()
    server = HealthServer("::", port, answers)
    try:
        server.start()
    except ConfigurationError:
        pytest.skip("this machine has no IPv6")
    try:
        for host in ("127.0.0.1", "::1"):
            connection = http.client.HTTPConnection(host, port, timeout=60)
            connection.request("GET", "/livez")
            assert connection.getresponse().status == 200
            connection.close()
    finally:
        server.end()


def test_a_forked_child_keeps_no_port_and_ends_no_server(server, place, ask, answers):
    reader, writer = os.pipe()
    up, running = os.pipe()
    child = os.fork()
    if child == 0:
        server.end()
        os.write(running, b"x")
        os.read(reader, 1)
        os._exit(0)
    try:
        os.read(up, 1)  # a busy machine may let it begin late
        assert ask("GET", "/livez").status == 200
        server.end()
        successor = HealthServer(place[0], place[1], answers)
        successor.start()
        assert ask("GET", "/livez").status == 200
        successor.end()
    finally:
        os.write(writer, b"x")
        os.waitpid(child, 0)
        for end in (reader, writer, up, running):
            os.close(end)
