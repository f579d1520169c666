"""angzarr doctor against real servers: what it mends when it is told to, and what it never does."""

from __future__ import annotations

import json
import socketserver
import sys
import threading
import types

import pytest
import redis
from click.testing import CliRunner

from angzarr.cli.main import main
from apps import apps
from doctoring import stock_app

WANTED = ("--only", "redis-not-persistent", "--only", "redis-evicts")


@pytest.fixture
def server(make_redis):
    return make_redis(options={"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"})


@pytest.fixture
def app(server, amqp_url, monkeypatch):
    with apps(broker=server.url, dlq={"backend": "amqp", "amqp_url": amqp_url}) as make:
        app = make()
        module = types.ModuleType("shop_for_doctor")
        vars(module).update(app=app)
        monkeypatch.setitem(sys.modules, "shop_for_doctor", module)
        yield app


def run(*arguments, **options):
    given = ["-A", "shop_for_doctor", "doctor", "--timeout", "10s", *arguments]
    return CliRunner().invoke(main, given, **options)


def configured(server):
    client = server.client(decode_responses=True)
    return client.config_get("appendonly") | client.config_get("maxmemory-policy")


BEFORE = {"appendonly": "no", "maxmemory-policy": "allkeys-lru"}
AFTER = {"appendonly": "yes", "maxmemory-policy": "noeviction"}


def test_without_fix_nothing_is_changed(app, server):
    assert run(*WANTED).exit_code == 1
    assert configured(server) == BEFORE


def test_a_no_changes_nothing(app, server):
    result = run(*WANTED, "--fix", input="n\nn\n")
    assert result.exit_code == 1
    assert configured(server) == BEFORE


def test_where_nobody_answers_nothing_is_changed(app, server):
    result = run(*WANTED, "--fix", input="")
    assert result.exit_code == 1
    assert configured(server) == BEFORE
    assert "no answer: nothing is changed" in result.stderr


def test_each_change_is_asked_for(app, server):
    result = run(*WANTED, "--fix", input="y\nn\n")
    assert len({*configured(server).items()} - {*BEFORE.items()}) == 1
    assert result.stderr.count("CONFIG SET") == 3, "asked twice, done once"
    assert result.exit_code == 1, "the other is still found"


def test_yes_mends_what_was_found_says_so_and_looks_again(app, server):
    server.client().rpush("celery", "a message", "another")
    result = run(*WANTED, "--fix", "--yes", "--format", "json")
    assert result.exit_code == 0, result.output
    assert configured(server) == AFTER
    told = json.loads(result.stdout)
    assert (told["failed"], told["findings"]) == (False, [])
    assert [one["done"] for one in told["fixed"]] == [True, True]
    assert result.stderr.count("done: CONFIG SET") == 2
    assert server.client().lrange("celery", 0, -1) == [b"a message", b"another"]


def test_what_is_skipped_is_not_mended(app, server):
    run("--only", "redis-evicts", "--fix", "--yes")
    assert configured(server) == {"appendonly": "no", "maxmemory-policy": "noeviction"}


def test_a_fix_that_its_server_refuses_is_told_and_stops_no_other(
    make_redis, amqp_url, monkeypatch
):
    server = make_redis(
        users=["user jo on >secret ~* &* +@all -config|set"],
        options={"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"},
    )
    url = server.url_for(user="jo", password="secret")
    with stock_app(url) as app:
        module = types.ModuleType("shop_for_doctor")
        vars(module).update(app=app)
        monkeypatch.setitem(sys.modules, "shop_for_doctor", module)
        result = run(*WANTED, "--fix", "--yes")
    assert result.exit_code == 1
    assert result.stderr.count("not done: CONFIG SET") == 2
    assert "secret" not in result.output
    assert configured(server) == BEFORE


def test_servers_that_are_away_end_no_roll_out_and_keep_ci_from_being_green(
    make_redis, monkeypatch
):
    """The chart's init container fails on critical findings, CI on errors too."""
    server = make_redis()
    url = server.url
    server.kill()
    dlq = {"backend": "amqp", "amqp_url": "amqp://guest:guest@127.0.0.1:9//"}
    with apps(broker=url, dlq=dlq) as make:
        module = types.ModuleType("shop_for_doctor")
        vars(module).update(app=make())
        monkeypatch.setitem(sys.modules, "shop_for_doctor", module)
        assert run("--fail-on", "critical").exit_code == 0
        result = run()
    assert result.exit_code == 1
    assert result.stdout.count("ERROR server-away") >= 2
    assert "Traceback" not in result.output


def test_a_password_of_any_server_is_shown_to_nobody(monkeypatch):
    url = "redis://:hunter2@127.0.0.1:9/0"
    dlq = {"backend": "amqp", "amqp_url": "amqp://jo:hunter3@127.0.0.1:9//"}
    ledger = "postgresql+psycopg://jo:hunter4@127.0.0.1:9/x"
    with apps(broker=url, dlq=dlq, ledger=ledger) as make:
        module = types.ModuleType("shop_for_doctor")
        vars(module).update(app=make())
        monkeypatch.setitem(sys.modules, "shop_for_doctor", module)
        for form in ("text", "json"):
            output = run("--format", form, "--management", "http://a:hunter5@127.0.0.1:9").output
            assert "server-away" in output
            assert "hunter" not in output


def test_a_stock_app_writes_nothing_to_its_broker(make_redis, monkeypatch):
    server = make_redis()
    with stock_app(server.url) as app:
        module = types.ModuleType("shop_for_doctor")
        vars(module).update(app=app)
        monkeypatch.setitem(sys.modules, "shop_for_doctor", module)
        run()
    with redis.Redis.from_url(server.url) as client:
        assert client.keys() == []


def test_what_is_no_redis_is_told_as_a_server_that_is_away(monkeypatch):
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Garbage) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with stock_app(f"redis://127.0.0.1:{server.server_address[1]}/0") as app:
            module = types.ModuleType("shop_for_doctor")
            vars(module).update(app=app)
            monkeypatch.setitem(sys.modules, "shop_for_doctor", module)
            result = run("--only", "server-away", "--only", "look-failed")
        server.shutdown()
    assert "ERROR server-away Redis at 127.0.0.1" in result.stdout
    assert "look-failed" not in result.stdout


class Garbage(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n\x00\xff")
