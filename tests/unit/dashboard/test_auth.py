"""What a stranger tries: forged sessions, proxies, guesses, malformed names, idle connections."""

from __future__ import annotations

import asyncio
import base64
import logging
import socket
import threading
from datetime import timedelta
from types import SimpleNamespace

import httpx
import pytest
from pydantic import ValidationError

from angzarr.dashboard import problem
from angzarr.dashboard import server as connections
from angzarr.dashboard.access import SESSION_LIFE, Access, Sessions, hash_of
from angzarr.dashboard.api.route import PREFIX
from angzarr.dashboard.paging import sealed
from angzarr.dashboard.server import MOST_EACH, GuardedConnection, bind, is_proxy, server_of
from angzarr.dashboard.shell import is_proxied
from angzarr.dashboard.site import live
from angzarr.errors import BrokerUnavailable, LedgerUnavailable, StoreUnavailable
from angzarr.runtime.failures import LogThrottle
from angzarr.settings.dashboard import DashboardSettings, DashboardToken, Role
from contracts.ledger import letter_of
from dashboard_caller import HOST, Client, api, browser, form_token, opened
from dashboard_world import SETTINGS, TOKENS, World
from hand_clock import HandClock
from polling import wait_until

KNOWN = SETTINGS.tokens[1]


# -- sessions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["angzarr_session", "angzarr_visit"])
@pytest.mark.parametrize("ends", ["9999999999", None])
def test_no_page_signs_what_a_stranger_sends_as_a_cookie(world, name, ends):
    """Whoever knows a token's hash could otherwise read the signature of a session off a form."""
    ends = ends or str(int(world.clock.now().timestamp()) + 60)
    chosen = f"{KNOWN.sha256}|{KNOWN.name}|{ends}"
    page = Client(world.app).get("/login", headers={"Cookie": f"{name}={chosen}"}).text
    told = base64.urlsafe_b64encode(f"{KNOWN.name}|{ends}|form".encode()).decode()
    forged = {"Cookie": f"angzarr_session={told}.{form_token(page)}"}
    assert Client(world.app).get("/groups", headers=forged).status_code == 303
    again = Client(world.app).get("/login", headers={"Cookie": f"{name}={chosen}"}).text
    assert form_token(again) != form_token(page)


def test_a_signature_is_worth_nothing_for_another_purpose_or_another_cut():
    sessions = Sessions(b"key", HandClock())
    signatures = {sessions._signed(one, "ab", "c") for one in (b"session", b"form", b"visit")}
    assert len(signatures) == 3
    assert sessions._signed(b"form", "ab", "c") != sessions._signed(b"form", "a", "bc")


def test_a_session_that_would_last_longer_than_any_is_nobodys():
    later = HandClock()
    later.sleep(timedelta(minutes=1))
    cookie = Sessions(b"key", later).begin(KNOWN)
    assert Sessions(b"key", later).read(cookie, SETTINGS.tokens) is not None
    assert Sessions(b"key", HandClock()).read(cookie, SETTINGS.tokens) is None


def test_a_copy_of_a_cookie_is_worth_nothing_after_logging_out(world):
    person = browser(world)
    copy = dict(person.cookies)["angzarr_session"]
    thief = {"Cookie": f"angzarr_session={copy}"}
    assert Client(world.app).get("/groups", headers=thief).status_code == 200
    other = browser(world)
    person.submit("/groups", "/logout")
    assert Client(world.app).get("/groups", headers=thief).status_code == 303
    assert other.get("/groups").status_code == 200


def test_ended_sessions_are_forgotten_when_they_are_over():
    clock = HandClock()
    sessions = Sessions(b"key", clock)
    for _ in range(2):
        sessions.end(sessions.read(sessions.begin(KNOWN), SETTINGS.tokens))
        clock.sleep(SESSION_LIFE)
    assert len(sessions._ended) == 1


def test_access_shows_no_key():
    access = Access(SETTINGS.tokens, Sessions(b"very-secret", HandClock()))
    assert "secret" not in repr(access) + repr(access.sessions)


def test_a_login_leads_back_to_the_page_with_its_query(world):
    asked = Client(world.app).get("/entries?status=held&domain=a%20b")
    assert asked.headers["location"] == "/login?next=/entries%3Fstatus%3Dheld%26domain%3Da%2520b"
    client = Client(world.app)
    page = client.get(asked.headers["location"]).text
    assert 'name="next" value="/entries?status=held&amp;domain=a%20b"' in page


# -- settings ----------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["test", "", "password", "token", "secret", "changeme"])
def test_the_hash_of_a_word_that_all_guess_is_refused(word):
    with pytest.raises(ValueError, match="all guess"):
        DashboardToken(name="ada", role=Role.VIEWER, sha256=hash_of(word))


@pytest.mark.parametrize("name", ["automatic", "Automatic@host", "local", "Local@host"])
def test_nobody_is_called_what_angzarr_calls_itself(name):
    with pytest.raises(ValidationError, match="what angzarr calls itself"):
        DashboardToken(name=name, role=Role.OPERATOR, sha256="a" * 64)


@pytest.mark.parametrize("name", ["", "*", "https://a.b", "a.b:80", "a/b", "a b", "a..b", "a\n"])
def test_hosts_are_names_alone(name):
    with pytest.raises(ValueError, match="names alone"):
        DashboardSettings(hosts=(name,))
    assert DashboardSettings(hosts=("dlq.example.com", "10.0.0.1", "::1", "DLQ")).hosts


# -- without tokens ----------------------------------------------------------------------------


#: What well-known proxies, load balancers and content delivery networks add.
ADDED_BY_PROXIES = (
    "Forwarded", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "X-Forwarded-Prefix",
    "X-Forwarded", "Forwarded-For", "X-Original-Forwarded-For", "Via", "Max-Forwards", "CDN-Loop",
    "X-Real-IP", "X-Real-Port", "X-Client-IP", "Client-IP", "X-Cluster-Client-IP", "True-Client-IP",
    "X-Remote-IP", "X-Remote-Addr", "X-Originating-IP", "X-ProxyUser-Ip", "Proxy-Connection",
    "CF-Connecting-IP", "CF-Ray", "Fastly-Client-IP", "Fly-Client-IP", "Tailscale-User-Login",
    "X-Envoy-External-Address", "X-Amzn-Trace-Id", "X-Amz-Cf-Id", "X-Azure-ClientIP", "X-ARR-SSL",
    "X-Appengine-Country", "X-Vercel-Id", "X-Varnish", "X-Host", "X-Scheme", "X-Original-URL",
    "X-Rewrite-URL", "X-Request-Start", "Front-End-Https", "SSL-Client-Cert",
)  # fmt: skip
#: What browsers and programs send of themselves.
OF_CALLERS = (
    "Accept", "Accept-Encoding", "Accept-Language", "Cache-Control", "Connection", "Cookie", "DNT",
    "Host", "Idempotency-Key", "If-Match", "Origin", "Pragma", "Priority", "Referer", "Sec-CH-UA",
    "Sec-CH-UA-Platform", "Sec-Fetch-Dest", "Sec-Fetch-Site", "Sec-GPC", "TE", "Traceparent",
    "Upgrade-Insecure-Requests", "User-Agent", "X-API-Key", "X-Request-ID", "X-Requested-With",
)  # fmt: skip


@pytest.mark.parametrize("header", ADDED_BY_PROXIES)
def test_without_tokens_nobody_comes_through_a_proxy(header):
    world = World(DashboardSettings())
    open_ = opened(world, **{"X-API-Key": world.site.token})
    for path in ("/groups", f"{PREFIX}/me", "/login"):
        answer = open_.get(path, headers={header: "127.0.0.1"})
        assert (answer.status_code, "configure tokens" in answer.text) == (403, True)
    assert open_.get("/healthz", headers={header: "x"}).status_code == 200
    assert api(World()).get(f"{PREFIX}/me", headers={header: "x"}).status_code == 200


def test_what_callers_send_of_themselves_makes_nobody_a_proxy():
    assert not is_proxied("1.1", OF_CALLERS)
    assert is_proxied("1.1", [*OF_CALLERS, "x-real-ip"])


def test_without_tokens_nobody_comes_through_nginx_which_adds_no_header():
    """Behind a bare `proxy_pass` it speaks HTTP/1.0, and names the address that it passes on to."""
    world = World(DashboardSettings())
    server = server_of(world.site)
    with bind("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            wait_until(lambda: server.started)
            port = listener.getsockname()[1]
            asked = {}
            for version in ("1.0", "1.1"):
                with socket.create_connection(("127.0.0.1", port), timeout=60) as caller:
                    head = f"GET {PREFIX}/me HTTP/{version}\r\nHost: 127.0.0.1:{port}\r\n"
                    shown = f"X-API-Key: {world.site.token}\r\nConnection: close\r\n\r\n"
                    caller.sendall((head + shown).encode())
                    asked[version] = caller.makefile("rb").readline().split()[1]
        finally:
            server.should_exit = True
            thread.join(60)
    assert asked == {"1.0": b"403", "1.1": b"200"}


def test_without_tokens_another_machine_is_refused():
    async def ask():
        app = World(DashboardSettings()).app
        transport = httpx.ASGITransport(app, client=("10.1.2.3", 5))
        async with httpx.AsyncClient(transport=transport, base_url=HOST) as client:
            return await client.get(f"{PREFIX}/me")

    assert asyncio.run(ask()).json()["type"].endswith("tokens-missing")


def test_a_token_that_nobody_knows_is_refused_without_tokens_as_well():
    client = api(World(DashboardSettings()), None, **{"X-API-Key": "guess"})
    assert client.get(f"{PREFIX}/me").status_code == 401


def test_whoever_shows_no_token_is_not_counted_as_guessing(world):
    statuses = {api(world, None).get(f"{PREFIX}/me").status_code for _ in range(20)}
    assert statuses == {401}


# -- what cannot be read -----------------------------------------------------------------------


@pytest.mark.parametrize("host", ["[::1", "[x]", "]", "a:b:c", "[::1]x"])
def test_a_host_that_cannot_be_read_is_not_ours(world, host, caplog):
    assert api(world).get("/groups", headers={"Host": host}).status_code == 421
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("origin", ["http://[::1", "http://[x]", "]["])
def test_an_origin_that_cannot_be_read_is_foreign(world, origin, caplog):
    answer = api(world).post(f"{PREFIX}/breakers/crm/reset", headers={"Origin": origin})
    assert answer.status_code == 403
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("id_", ["", "a\x00b", "a b", "x" * 65, "é", "'--"])
@pytest.mark.parametrize("noun", ["entries", "groups", "jobs"])
def test_a_cursor_with_an_id_that_is_none_is_refused(world, noun, id_):
    after = sealed(f"2026-01-01T00:00:00+00:00~{id_}")
    answer = api(world).get(f"{PREFIX}/{noun}", params={"after": after})
    assert (answer.status_code, answer.json()["type"][-10:]) == (400, "bad-cursor")


def test_a_bug_behind_a_cursor_is_not_blamed_on_the_caller(world, monkeypatch):
    def broken(*_arguments, **_options):
        raise ValueError("a bug")

    monkeypatch.setattr(world.ledger, "get_failed_events", broken)
    assert api(world).get(f"{PREFIX}/entries").status_code == 500


# -- groups and jobs ---------------------------------------------------------------------------


@pytest.fixture
def group(world):
    (entry,) = world.ledger.add_failed_events([letter_of("e1")])
    return entry.fingerprint


@pytest.mark.parametrize(
    "change", [{"owner": "x" * 201}, {"note": "x" * 4001}, {"status": "regressed"}]
)
def test_what_a_group_cannot_hold_is_invalid(world, group, change):
    answer = api(world).ask("PATCH", f"{PREFIX}/groups/{group}", json=change,
                            headers={"If-Match": '"1"'})  # fmt: skip
    assert (answer.status_code, answer.json()["type"][-7:]) == (422, "invalid")
    person, path = browser(world), f"/groups/{group}"
    assert person.submit(path, path, revision="1", **change).status_code == 422
    assert world.groups.open_group(group).revision == 1


def test_a_group_holds_what_the_analysis_says(world, group):
    change = {"owner": "x" * 200, "note": "y" * 4000}
    any_ = {"If-Match": "*"}
    path = f"{PREFIX}/groups/{group}"
    assert api(world).ask("PATCH", path, json=change, headers=any_).status_code == 200
    assert api(world).ask("PATCH", path, json=change).status_code == 428
    assert "regressed</option>" not in browser(world).get(f"/groups/{group}").text


def test_the_page_of_jobs_shows_those_in_a_status(world, group):
    job = api(world).post(f"{PREFIX}/jobs", json={"filter": {"fingerprint": group}}).json()["id"]
    person = browser(world)
    assert f"/jobs/{job}" in person.get("/jobs?status=running").text
    assert f"/jobs/{job}" not in person.get("/jobs?status=paused").text


# -- what the log says -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (LedgerUnavailable, "the ledger is away"),
        (BrokerUnavailable, "the broker is away"),
        (StoreUnavailable, "the flow store is away"),
    ],
)
def test_an_outage_names_its_server_and_is_logged_once_a_minute(
    world, monkeypatch, caplog, error, what
):
    def away(*_arguments, **_options):
        raise error("refused by ada\x1b@db") from OSError(111)

    monkeypatch.setattr(problem, "_throttle", LogThrottle())
    monkeypatch.setattr(world.ledger, "get_failure_stats", away)
    answers = [api(world).get(f"{PREFIX}/stats") for _ in range(3)]
    assert {one.status_code for one in answers} == {503}
    assert what in answers[0].json()["detail"]
    assert "ada" not in answers[0].text
    lines = [line.getMessage() for line in caplog.records if what in line.getMessage()]
    assert lines == [f"server_away: {what}: refused by ada\ufffd@db (OSError)"]


def test_logins_guesses_and_refusals_are_lines_without_tokens(world, caplog):
    caplog.set_level(logging.INFO, "angzarr.dashboard.access_log")
    viewer = browser(world, Role.VIEWER)
    viewer.submit("/groups", "/logout")
    api(world, None, **{"X-API-Key": "guess\x1b"}).get(f"{PREFIX}/me")
    api(world, Role.VIEWER).post(f"{PREFIX}/breakers/a%0Ab/reset")
    for _ in range(3):
        api(world).post("/login", headers={"Origin": "http://evil.example"})
    lines = [line for line in caplog.records if line.name == "angzarr.dashboard.access_log"]
    assert [line.visit_outcome for line in lines] == [
        "login", "logout", "wrong-token", "forbidden", "foreign-origin",
    ]  # fmt: skip
    assert {line.visit_address for line in lines} == {"127.0.0.1"}
    assert [line.visit_caller for line in lines[:4]] == ["viewer@test"] * 2 + ["-", "viewer@test"]
    assert lines[3].visit_path.endswith("/a\ufffdb/reset")
    assert not any(one in caplog.text for one in ("guess", TOKENS[Role.VIEWER]))


# -- connections -------------------------------------------------------------------------------


@pytest.fixture
def port(world, monkeypatch):
    monkeypatch.setattr(connections, "HEADER_TIME", 0.2)
    server = server_of(world.site)
    with bind("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        wait_until(lambda: server.started)
        yield listener.getsockname()[1]
        server.should_exit = True
        thread.join(60)


@pytest.mark.parametrize(
    "said", [b"", b"GET /heal", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /h"]
)
def test_a_connection_that_does_not_ask_is_closed(port, said):
    with socket.create_connection(("127.0.0.1", port), timeout=60) as idle:
        idle.sendall(said)
        while idle.recv(65_536):
            pass


def test_health_waits_for_no_thread():
    assert asyncio.iscoroutinefunction(live)


def test_an_address_has_so_many_connections_and_a_proxy_any():
    def too_many(address, count):
        one = SimpleNamespace(client=(address, 1))
        mine = SimpleNamespace(
            client=(address, 1),
            connections=[one] * count + [SimpleNamespace(client=("10.9.9.9", 1))] * 99,
            config=SimpleNamespace(forwarded_allow_ips="127.0.0.1, 10.0.0.0/30"),
        )
        return GuardedConnection._are_too_many(mine)

    assert not too_many("192.0.2.1", MOST_EACH)
    assert too_many("192.0.2.1", MOST_EACH + 1)
    assert not too_many("10.0.0.2", MOST_EACH + 1)
    assert not too_many("127.0.0.1", MOST_EACH + 1)
    assert not is_proxy("192.0.2.1", "*")
