"""What no request gets past, and what every answer carries."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

import pytest

from angzarr.dashboard.api.route import MOST_PARAMETERS, PREFIX
from angzarr.dashboard.server import server_of
from angzarr.dashboard.shell import Shell
from angzarr.settings.dashboard import DashboardSettings, Role
from dashboard_caller import Client, api, browser, hidden
from dashboard_world import SETTINGS, World

#: A path of each kind.
EVERYWHERE = ["/groups", "/login", "/nothing", "/static/style.css", f"{PREFIX}/me", "/healthz"]


@pytest.mark.parametrize("path", EVERYWHERE)
def test_every_answer_is_fenced_in(world, path):
    headers = api(world).get(path).headers
    assert headers["x-content-type-options"] == "nosniff"
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["cache-control"] == ("no-cache" if "static" in path else "no-store")


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "", "testserver:65536"]
)
def test_a_name_that_nobody_listed_is_refused(world, host):
    for path in ("/groups", f"{PREFIX}/me"):
        answer = api(world).get(path, headers={"Host": host})
        assert answer.status_code == 421


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost", "[::1]:8080", "DLQ.example.com"])
def test_a_name_of_this_machine_or_of_the_settings_is_served(host):
    world = World(SETTINGS.model_copy(update={"hosts": ("dlq.example.com",)}))
    assert api(world).get(f"{PREFIX}/me", headers={"Host": host}).status_code == 200


def test_a_probe_may_ask_for_health_under_any_name(world):
    assert api(world, None).get("/healthz", headers={"Host": "10.1.2.3"}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://testserver:81"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_another_sites_page_changes_nothing(headers):
    """A browser sends its session with whatever page asks, were it not for `samesite`."""
    world = World(DashboardSettings())
    shown = {"X-API-Key": world.site.token}
    answer = Client(world.app, **shown).post(f"{PREFIX}/breakers/crm/isolate", headers=headers)
    assert answer.status_code == 403
    assert world.breakers.states()["crm"].phase == "closed"


def test_our_own_page_may_change_things(world):
    headers = {"Origin": "http://testserver", "Sec-Fetch-Site": "same-origin"}
    assert api(world).post(f"{PREFIX}/breakers/crm/reset", headers=headers).status_code == 200


def test_a_body_that_does_not_come_is_not_waited_for(world):
    shell = Shell(world.app._app, ["testserver"], body_time=timedelta(seconds=0))
    sent = []

    async def never():
        await asyncio.Event().wait()

    async def keep(message):
        sent.append(message)

    scope = {
        "type": "http", "method": "POST", "path": "/login", "raw_path": b"/login",
        "query_string": b"", "headers": [(b"host", b"testserver")], "http_version": "1.1",
        "scheme": "http", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2),
    }  # fmt: skip
    asyncio.run(shell(scope, never, keep))
    assert sent[0]["status"] == 408


def test_a_session_cookie_is_out_of_reach_of_scripts_and_other_sites(world):
    client = Client(world.app)
    answer = client.submit("/login", "/login", token=f"{Role.VIEWER.value}-token", next="/jobs")
    assert answer.headers["location"] == "/jobs"
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie


def test_over_tls_no_other_host_of_the_domain_sets_a_cookie_of_ours(world):
    """Which a browser promises for names that begin so, if what is set fits the promise."""
    client = Client(world.app)
    login = "https://testserver/login"
    page = client.get(login)
    fields = hidden(page.text) | {"token": "viewer-token"}
    for answer in (page, client.post(login, data=fields)):
        name, _, rest = answer.headers["set-cookie"].partition("=")
        said = {one.strip().lower() for one in rest.split(";")}
        assert name.startswith("__Host-angzarr_")
        assert {"secure", "path=/", "httponly"} <= said
        assert not any(one.startswith("domain") for one in said)
    assert client.get("https://testserver/groups").status_code == 200
    session = dict(client.cookies)["__Host-angzarr_session"]
    planted = {"Cookie": f"angzarr_session={session}"}
    assert Client(world.app).get("https://testserver/groups", headers=planted).status_code == 303
    out = client.submit("https://testserver/groups", "https://testserver/logout")
    gone = out.headers["set-cookie"].lower()
    assert gone.startswith("__host-angzarr_session=")
    assert "secure" in gone
    assert client.get("https://testserver/groups").status_code == 303


def test_two_dashboards_of_one_machine_leave_each_other_their_sessions():
    """Browsers send the cookies of one port to all others."""
    one, other = World(), World()
    person = Client(one.app)
    for world, at in ((one, "http://127.0.0.1:8080"), (other, "http://127.0.0.1:8081")):
        person.app = world.app
        person.submit(f"{at}/login", f"{at}/login", token="viewer-token")
    for world, at in ((one, "http://127.0.0.1:8080"), (other, "http://127.0.0.1:8081")):
        person.app = world.app
        assert person.get(f"{at}/groups").status_code == 200


@pytest.mark.parametrize("where", ["//evil.example", "https://evil.example", "/\\evil.example", ""])
def test_a_login_leads_nowhere_else(world, where):
    answer = Client(world.app).submit("/login", "/login", token="viewer-token", next=where)
    assert answer.headers["location"] == "/"


def test_whoever_logs_out_is_out(world):
    client = browser(world)
    assert client.get("/groups").status_code == 200
    client.submit("/groups", "/logout")
    assert client.get("/groups").status_code == 303


def test_a_query_of_thousands_of_parameters_is_refused_before_they_are_compared(world):
    client, few = api(world), "&".join(f"f{n}=1" for n in range(MOST_PARAMETERS))
    for query in (f"{few}&more=1", "&".join("f=1" for _ in range(10_000))):
        refused = client.get(f"{PREFIX}/entries?{query}")
        assert (refused.status_code, refused.json()["type"][-7:]) == (422, "invalid")
        assert len(refused.content) < 500
    told = client.get(f"{PREFIX}/entries?{few}").json()["errors"]
    assert len(told) == 20
    long = client.get(f"{PREFIX}/entries?{'x' * 20_000}=1")
    assert len(long.content) < 1000


def test_what_strangers_can_cause_without_end_is_in_the_log_once_a_minute(world, caplog):
    log = logging.getLogger("uvicorn.error")
    log.filters.clear()
    server_of(world.site)
    server_of(world.site)
    assert len(log.filters) == 1
    for _ in range(5):
        log.warning("Invalid HTTP request received.")
        log.warning("Exceeded concurrency limit.")
        log.error("a fault of ours")
    told = [line.getMessage() for line in caplog.records if line.name == "uvicorn.error"]
    assert len(told) == 2 + 5
