"""Who may do what: every route, every role."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import pytest
from pydantic import SecretStr
from starlette.requests import Request

from angzarr.analysis.ledger.entry import Status
from angzarr.analysis.replay.job import JobPlan, JobStatus, Selection
from angzarr.dashboard import access
from angzarr.dashboard.access import Access, Refusals, Sessions, hash_of, is_loopback, new_token
from angzarr.dashboard.api.route import PREFIX, GuardedRoute
from angzarr.dashboard.pages.route import OpenPageRoute, PageRoute
from angzarr.dashboard.problem import Problem
from angzarr.dashboard.site import ROUTERS
from angzarr.settings.dashboard import DashboardSettings, Role
from dashboard_caller import Client, api, browser, form_token, opened
from dashboard_world import SETTINGS, TOKENS, World
from hand_clock import HandClock

#: What stands in for the parameters of a path.
VALUES = {
    "{entry_id}": "0" * 64,
    "{fingerprint}": "0" * 16,
    "{job_id}": "none",
    "{name}": "none",
    "{case_id}": "none",
    "{fact_id:path}": "none",
    "{how}": "isolate",
    "{verb}": "skip",
}
#: What anybody may ask for.
OPEN_PATHS = {"/healthz", "/", "/login", "/logout"}
REFUSED = (401, 403)


@pytest.fixture
def open_world():
    """A dashboard whose settings list no tokens."""
    return World(DashboardSettings())


def every_route():
    return [route for router in ROUTERS for route in router.routes]


def asked():
    """Return (method, path, whether it is the API's) of everything there is to ask for."""
    made = set()
    for route in every_route():
        path = route.path
        for name, value in VALUES.items():
            path = path.replace(name, "pause" if "/jobs/" in path and name == "{how}" else value)
        made |= {(method, path) for method in route.methods}
    return sorted(one for one in made if one[1] not in OPEN_PATHS)


#: Of the API; the second one has the seed's path to append facts.
PREFIXES = (PREFIX, "/v1/")
API = [one for one in asked() if one[1].startswith(PREFIXES)]
PAGES = [one for one in asked() if not one[1].startswith(PREFIXES)]


def test_every_route_is_of_a_kind_that_lets_its_caller_in():
    loose = [r.path for r in every_route() if not isinstance(r, GuardedRoute | PageRoute)]
    assert loose == ["/healthz"]
    open_ = {route.path for route in every_route() if isinstance(route, OpenPageRoute)}
    assert open_ == OPEN_PATHS - {"/healthz"}
    assert (len(API), len(PAGES)) == (46, 44)


@pytest.mark.parametrize(("method", "path"), API)
def test_no_route_of_the_api_answers_without_a_token(world, method, path):
    assert api(world, None).ask(method, path).status_code == 401
    assert api(world, None, **{"X-API-Key": "guess"}).ask(method, path).status_code == 401


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize(("method", "path"), API)
def test_viewers_see_operators_act_and_approvers_approve(world, method, path, role):
    options = {} if method == "GET" else {"json": {}}
    status = api(world, role).ask(method, path, **options).status_code
    seen = method == "GET" and not path.endswith("/data")  # it is opened to be edited
    needed = Role.VIEWER if seen else Role.OPERATOR
    needed = Role.APPROVER if path.endswith("/approve") else needed
    assert (status == 403) == (not role.covers(needed))
    assert status not in (401, 405, 500)


@pytest.mark.parametrize(("method", "path"), PAGES)
def test_no_page_is_shown_without_a_session(world, method, path):
    answer = Client(world.app).ask(method, path)
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/login")


@pytest.mark.parametrize("path", [path for method, path in PAGES if method == "POST"])
def test_no_form_is_taken_from_a_viewer(world, path):
    viewer = browser(world, Role.VIEWER)
    form = {"form_token": form_token(viewer.get("/groups").text), "revision": "1"}
    assert viewer.post(path, data=form).status_code == 403


@pytest.mark.parametrize("path", [path for method, path in PAGES if method == "POST"])
def test_no_form_is_taken_without_its_sessions_token(world, path):
    person = browser(world)
    for form in ({}, {"form_token": "guess"}):
        answer = person.post(path, data={"revision": "1", **form})
        assert answer.status_code == 403
        assert "another session" in answer.text


def test_a_form_of_one_session_is_not_taken_from_another(world):
    world.break_()
    token = form_token(browser(world).get("/breakers/crm/isolate").text)
    other = browser(world, Role.APPROVER)
    assert other.post("/breakers/crm/isolate", data={"form_token": token}).status_code == 403


def test_a_bearer_token_is_as_good_as_a_key(world):
    client = api(world, None, Authorization=f"bearer {TOKENS[Role.VIEWER]}")
    assert client.get(f"{PREFIX}/me").json() == {"name": "viewer@test", "role": "viewer"}


def test_a_session_cookie_opens_no_route_of_the_api(world):
    assert browser(world).get(f"{PREFIX}/me").status_code == 401


def test_a_wrong_token_begins_no_session(world):
    client = Client(world.app)
    assert client.submit("/login", "/login", token="guess").status_code == 401
    assert client.get("/groups").status_code == 303


def test_whoever_guesses_tokens_is_slowed_down(world):
    client = api(world, None, **{"X-API-Key": "guess"})
    statuses = [client.get(f"{PREFIX}/me").status_code for _ in range(12)]
    assert statuses == [401] * 10 + [429] * 2
    assert client.get(f"{PREFIX}/me", headers={"X-API-Key": TOKENS[Role.VIEWER]}).status_code == 200


def test_a_caller_that_asks_too_often_is_told_when_to_come_back():
    world = World(SETTINGS.model_copy(update={"rate": 1.0, "burst": 2}))
    client = api(world, Role.VIEWER)
    answers = [client.get(f"{PREFIX}/me") for _ in range(3)]
    assert [one.status_code for one in answers] == [200, 200, 429]
    assert answers[2].headers["retry-after"] == "1"
    assert api(world, Role.OPERATOR).get(f"{PREFIX}/me").status_code == 200
    world.clock.sleep(timedelta(seconds=1))
    assert client.get(f"{PREFIX}/me").status_code == 200


def test_the_audit_names_the_caller_of_every_change(world):
    (entry,) = world.file(1)
    act = {"verb": "skip", "note": "a test order"}
    assert api(world).post(f"{PREFIX}/entries/{entry.id}/acts", json=act).status_code == 200
    detail = world.ledger.open(entry.id)
    assert detail.entry.status is Status.SKIPPED
    assert (detail.history[-1].who, detail.history[-1].detail) == ("operator@test", "a test order")


class TestSessions:
    @pytest.fixture
    def clock(self):
        return HandClock()

    @pytest.fixture
    def access(self, clock):
        return Access(SETTINGS.tokens, Sessions(b"key", clock))

    def test_a_session_is_over_after_twelve_hours(self, access, clock):
        cookie = access.sessions.begin(SETTINGS.tokens[0])
        assert access.by_session(cookie).name == "viewer@test"
        clock.sleep(timedelta(hours=12))
        assert access.by_session(cookie) is None

    def test_a_changed_cookie_is_nobodys(self, access):
        cookie = access.sessions.begin(SETTINGS.tokens[0])
        for other in (cookie[:-2], f"x{cookie}", cookie.replace(".", ".A"), "", ".", "é.é"):
            assert access.by_session(other) is None

    def test_a_session_ends_when_its_token_is_replaced_or_removed(self, access, clock):
        cookie = access.sessions.begin(SETTINGS.tokens[0])
        newer = SETTINGS.tokens[0].model_copy(update={"sha256": hash_of("another")})
        for tokens in ((newer,), SETTINGS.tokens[1:]):
            assert Access(tokens, Sessions(b"key", clock)).by_session(cookie) is None

    def test_a_session_signed_with_another_key_is_nobodys(self, access, clock):
        cookie = access.sessions.begin(SETTINGS.tokens[0])
        assert Access(SETTINGS.tokens, Sessions(b"other", clock)).by_session(cookie) is None


@pytest.mark.parametrize(("method", "path"), [*API, *PAGES])
def test_without_tokens_whoever_only_reaches_it_is_let_in_nowhere(open_world, method, path):
    """A proxy need not say that it is one, and a machine has other people."""
    answer = Client(open_world.app).ask(method, path)
    refused = 401 if path.startswith(PREFIXES) else 303
    assert answer.status_code == refused
    guess = {"X-API-Key": "guess", "Cookie": "angzarr_session=guess"}
    assert Client(open_world.app, **guess).ask(method, path).status_code == refused


def test_without_tokens_the_link_of_the_start_lets_a_browser_in(open_world):
    client = Client(open_world.app)
    answer = client.get(f"/login?token={open_world.site.token}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert open_world.site.token not in answer.headers["set-cookie"]
    assert client.get("/groups").status_code == 200
    assert client.get("/login?token=guess").status_code == 401


def test_without_tokens_a_program_shows_the_token_of_the_start(open_world):
    client = Client(open_world.app, **{"X-API-Key": open_world.site.token})
    assert client.get(f"{PREFIX}/me").json() == {"name": "local", "role": "approver"}


def test_each_start_has_a_token_of_its_own_and_ends_the_sessions_before_it():
    key = SecretStr("k" * 32)
    first, second = (World(DashboardSettings(session_key=key)) for _ in range(2))
    assert len(first.site.token) >= 43
    client = opened(first)
    client.app = second.app
    assert client.get("/groups").status_code == 303
    stale = Client(second.app, **{"X-API-Key": first.site.token})
    assert stale.get(f"{PREFIX}/me").status_code == 401


def test_whoever_guesses_the_token_of_the_start_is_slowed_down(open_world):
    client = Client(open_world.app)
    statuses = [client.get("/login?token=guess").status_code for _ in range(12)]
    assert statuses == [401] * 10 + [429] * 2


def test_a_token_that_lasts_is_not_taken_from_an_address(world):
    client = Client(world.app)
    assert client.get(f"/login?token={TOKENS[Role.VIEWER]}").status_code == 200
    assert client.get("/groups").status_code == 303
    assert world.site.token == ""


def test_the_token_of_the_start_is_in_no_log(open_world, caplog):
    caplog.set_level(0)
    client = opened(open_world)
    client.get("/groups")
    client.get(f"/login?token={open_world.site.token}x")
    ours = [one.getMessage() for one in caplog.records if one.name.startswith("angzarr.dashboard")]
    assert len(ours) == 2
    assert open_world.site.token not in "".join(ours)


@pytest.mark.parametrize("approvals", [{"approval_over": 1}, {"approves_edits": True}])
def test_without_tokens_nobody_approves_where_a_second_person_must(approvals):
    world = World(DashboardSettings())
    vars(world).update(approvals)
    entries = world.file(3)
    chosen = Selection(entry_ids=tuple(one.id for one in entries))
    job = world.jobs.begin(chosen, JobPlan(), by="ann@host", job_id="j1", approval_over=1)
    client = opened(world, **{"X-API-Key": world.site.token})
    assert client.get(f"{PREFIX}/me").json()["role"] == "operator"
    path, saw = f"{PREFIX}/jobs/{job.id}/approve", {"If-Match": f'"{job.revision}"'}
    refused = client.post(path, json={}, headers=saw)
    assert (refused.status_code, "set up dashboard.tokens" in refused.text) == (403, True)
    page = client.get(f"/jobs/{job.id}/approve")
    assert (page.status_code, "set up dashboard.tokens" in page.text) == (403, True)
    assert world.jobs.open_job(job.id).status is JobStatus.PROPOSED
    cancelled = client.submit(f"/jobs/{job.id}/cancel", f"/jobs/{job.id}/cancel")
    assert cancelled.status_code == 303


def test_what_was_proposed_without_a_token_nobody_approves():
    world = World()
    entries = world.file(3)
    chosen = Selection(entry_ids=tuple(one.id for one in entries))
    job = world.jobs.begin(chosen, JobPlan(), by="local", job_id="j1", approval_over=1)
    assert "local may be anybody: propose it by name" in job.said
    path, saw = f"{PREFIX}/jobs/{job.id}/approve", {"If-Match": f'"{job.revision}"'}
    refused = api(world, Role.APPROVER).post(path, json={}, headers=saw)
    assert (refused.status_code, "may be anybody" in refused.text) == (409, True)
    assert world.jobs.approve(job.id, by="ann@host") is None


def test_an_approval_that_is_left_is_not_given_without_a_token():
    world = World(DashboardSettings())
    entries = world.file(3)
    chosen = Selection(entry_ids=tuple(one.id for one in entries))
    job = world.jobs.begin(chosen, JobPlan(), by="ann@host", job_id="j1", approval_over=1)
    page = opened(world).get(f"/jobs/{job.id}/approve")
    assert (page.status_code, "approve it by name" in page.text) == (409, True)


def test_without_tokens_a_form_still_carries_its_token(open_world):
    client = opened(open_world)
    assert client.post("/breakers/crm/isolate", data={"form_token": "guess"}).status_code == 403
    assert client.submit("/breakers/crm/isolate", "/breakers/crm/isolate").status_code == 303


def test_a_new_token_is_known_by_its_hash_alone():
    token, known = new_token()
    assert known == hash_of(token)
    assert token not in known
    assert len(token) >= 43


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "[::1]", "localhost"])
def test_this_machine_is_loopback(host):
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["::", "10.0.0.1", "localhost.evil.example", ""])
def test_everything_else_is_not(host):
    assert not is_loopback(host)


def test_strangers_of_any_number_fill_no_table(world, monkeypatch):
    """An attacker who has a network of IPv6 has more addresses than there is memory."""
    auth = world.app._app.state.auth
    refusals = Refusals()
    monkeypatch.setattr(access, "note", lambda *_: None)
    monkeypatch.setattr(access, "note", lambda *_: None)
    monkeypatch.setattr(access, "PLACES", 64)
    for number in range(1500):
        for address in (f"10.1.{number >> 8}.{number & 255}", f"2001:db8:{number:x}::1"):
            scope = {"type": "http", "client": (address, 1), "method": "GET", "path": "/"}
            with suppress(Problem):
                auth._note_guess(Request(scope))
            refusals.note(403, "foreign-origin", scope)
    assert len(auth.limits._meters) <= access.PLACES
    assert len(refusals._throttle._next) <= access.PLACES


def test_all_addresses_of_one_network_are_one_strangers():
    def place(address):
        return access.place_of({"client": (address, 1)})

    assert place("2001:db8:1:2::1") == place("2001:db8:1:2:ffff::9%eth0")
    assert place("::ffff:10.1.2.3") == place("10.1.2.3")
    assert len({place(f"2001:db8:1:{n:x}::1") for n in range(50)}) > 40
    assert place("") == place("")
