"""The brake over HTTP and on pages: who may move it, and that nobody overlooks it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from angzarr.analysis.ledger import emergency_stop as brakes
from angzarr.analysis.ledger.emergency_stop import Scope
from angzarr.dashboard.api.route import PREFIX
from angzarr.dashboard.services import AWAY, FRESH, BrakeLight
from angzarr.errors import LedgerUnavailable
from angzarr.settings.dashboard import Role
from dashboard_caller import Client, api, browser, hidden
from hand_clock import START

BRAKE = f"{PREFIX}/brake"
TWO_HOURS = "2026-01-01T14:00:00+00:00"


def test_a_brake_is_pulled_shown_and_released(world, client):
    assert client.get(BRAKE).json()["holds"] == "nothing"
    pull = {"scope": "all", "why": "the CRM is ill", "until": "2026-01-01T15:00:00+01:00"}
    told = client.post(f"{BRAKE}/pull", json=pull).json()
    assert (told["holds"], told["by"], told["until"]) == ("all", "operator@test", TWO_HOURS)
    assert api(world, Role.VIEWER).get(BRAKE).json()["why"] == "the CRM is ill"
    assert client.post(f"{BRAKE}/release", json={"why": "well"}).json()["holds"] == "nothing"
    assert [one["scope"] for one in client.get(BRAKE).json()["history"]] == ["all", "nothing"]


def test_a_second_pull_weakens_nothing(client):
    client.post(f"{BRAKE}/pull", json={"scope": "all"})
    told = client.post(f"{BRAKE}/pull", json={"until": TWO_HOURS}).json()
    assert (told["holds"], told["until"]) == ("all", None)


def test_a_brake_that_let_go_by_itself_holds_nothing(world, client):
    client.post(f"{BRAKE}/pull", json={"until": TWO_HOURS})
    world.clock.sleep(timedelta(hours=2))
    told = client.get(BRAKE).json()
    assert (told["scope"], told["holds"]) == ("automatic", "nothing")


@pytest.mark.parametrize(
    "pull",
    [{"scope": "nothing"}, {"until": "2026-01-01T12:00:00Z"}, {"why": "x" * 2001}, {"for": "2h"}],
)
def test_a_pull_that_says_nothing_sensible_is_refused(world, client, pull):
    assert client.post(f"{BRAKE}/pull", json=pull).status_code == 422
    assert world.brake.state().at is None


@pytest.mark.parametrize("how", ["pull", "release"])
def test_a_viewer_moves_no_brake(world, how):
    assert api(world, Role.VIEWER).post(f"{BRAKE}/{how}", json={}).status_code == 403
    viewer = browser(world, Role.VIEWER)
    assert viewer.submit("/brake", f"/brake/{how}", scope="all").status_code == 403
    assert world.brake.state().at is None
    assert "Pull the brake" not in viewer.get("/brake").text


def test_a_program_releases_the_pull_that_it_saw(world, client):
    client.post(f"{BRAKE}/pull", json={})
    saw = {"If-Match": client.get(BRAKE).headers["ETag"]}
    worse = client.post(f"{BRAKE}/pull", json={"scope": "all"})
    refused = client.post(f"{BRAKE}/release", json={}, headers=saw)
    assert (refused.status_code, refused.json()["type"][-5:]) == (412, "stale")
    assert world.brake.state().scope is Scope.ALL
    saw = {"If-Match": worse.headers["ETag"]}
    assert client.post(f"{BRAKE}/release", json={}, headers=saw).json()["holds"] == "nothing"


def test_a_pull_between_the_look_and_the_release_is_not_released(world, person, monkeypatch):
    person.submit("/brake", "/brake/pull", scope="automatic")
    form, put = hidden(person.get("/brake/release").text), world.brake.put

    def late(*args, **how):
        monkeypatch.undo()
        put(Scope.ALL, by="ada", why="worse")
        return put(*args, **how)

    monkeypatch.setattr(world.brake, "put", late)
    assert person.post("/brake/release", data=form).status_code == 412
    assert world.brake.state().scope is Scope.ALL


# -- pages -----------------------------------------------------------------------------------


def test_every_page_says_that_the_brake_is_pulled_by_whom_since_when_and_why(world, person):
    (entry,) = world.file(1)
    person.submit("/brake", "/brake/pull", scope="all", ends="1 hour", note="the CRM <b>is</b> ill")
    paths = (
        "/groups", "/entries", f"/entries/{entry.id}", "/jobs", "/breakers", "/brake", "/alerts",
        f"/entries/{'0' * 64}", f"/groups/{entry.fingerprint}/replay",
    )  # fmt: skip
    for path in paths:
        page = person.get(path).text
        said = page[page.index('id="brake"') :][:700]
        for word in ("jobs and compensations included", "2026-01-01 12:00:00 UTC", "operator@test",
                     "the CRM &lt;b&gt;is&lt;/b&gt; ill", "2026-01-01 13:00:00 UTC"):  # fmt: skip
            assert word in said, (path, word)
    assert "Release…" in person.get("/groups").text
    assert "Release…" not in browser(world, Role.VIEWER).get("/groups").text
    world.clock.sleep(timedelta(hours=1))
    assert 'id="brake"' not in person.get("/groups").text


def test_strangers_are_not_told_of_the_brake(world, person):
    person.submit("/brake", "/brake/pull", scope="all", note="secret plans")
    assert "secret plans" not in Client(world.app).get("/login").text


def test_a_brake_is_released_after_a_question(world, person):
    person.submit("/brake", "/brake/pull", scope="automatic", note="why")
    assert "nothing is replayed by itself" in person.get("/brake/release").text
    assert person.submit("/brake/release", "/brake/release").status_code == 303
    assert world.brake.state().scope is Scope.NOTHING
    assert 'id="brake"' not in person.get("/groups").text


def test_a_pull_that_nobody_saw_is_not_released(world, person):
    person.submit("/brake", "/brake/pull", scope="automatic")
    form = hidden(person.get("/brake/release").text)
    world.brake.put(Scope.ALL, by="ada", why="worse")  # the clock says the same
    answer = person.post("/brake/release", data=form)
    assert answer.status_code == 412
    assert "by ada: worse" in answer.text
    assert world.brake.state().scope is Scope.ALL


@pytest.mark.parametrize("form", [{"scope": "nothing"}, {"scope": "all", "ends": "9 days"}, {}])
def test_a_form_that_its_page_did_not_offer_pulls_nothing(world, person, form):
    assert person.submit("/brake", "/brake/pull", **form).status_code == 422
    assert world.brake.state().at is None


# -- the light -------------------------------------------------------------------------------


@pytest.fixture
def light(world):
    return BrakeLight(world.brake, world.clock)


def test_the_ledger_is_not_asked_for_every_page(world, light, monkeypatch):
    world.brake.put(Scope.ALL, by="ada")
    asked, state = [], world.brake.state
    monkeypatch.setattr(world.brake, "state", lambda: asked.append(1) or state())
    assert [light.look().scope for _ in range(3)] == [Scope.ALL] * 3
    assert len(asked) == 1
    world.brake.put(Scope.NOTHING, by="ada")
    asked.clear()
    assert light.look().scope is Scope.ALL
    world.clock.sleep(FRESH)
    assert light.look().scope is Scope.NOTHING
    assert len(asked) == 1


def test_while_the_ledger_is_away_the_brake_is_as_it_was_and_no_page_waits(
    world, light, monkeypatch
):
    world.brake.put(Scope.ALL, by="ada")
    light.look()
    asked = []

    def away():
        asked.append(world.clock.now())
        raise LedgerUnavailable("away")

    monkeypatch.setattr(world.brake, "state", away)
    world.clock.sleep(FRESH)
    assert [light.look().scope for _ in range(3)] == [Scope.ALL] * 3
    world.clock.sleep(AWAY)
    light.look()
    assert asked == [START + FRESH, START + FRESH + AWAY]


def test_a_page_says_that_the_brake_is_not_known_before_the_ledger_ever_answered(
    world, person, monkeypatch
):
    def away():
        raise LedgerUnavailable("away")

    world.brake.put(Scope.ALL, by="ada")
    with monkeypatch.context() as patched:
        patched.setattr(world.brake, "state", away)
        assert "not known how the brake stands" in person.get("/alerts").text
        assert "not known how" not in Client(world.app).get("/login").text
        world.clock.sleep(AWAY)
    page = person.get("/alerts").text
    assert "by ada" in page
    assert "not known how the brake stands" not in page


def test_a_page_does_not_wait_for_another_that_asks(world, light, monkeypatch):
    world.brake.put(Scope.ALL, by="ada")
    state, meanwhile = world.brake.state, []
    monkeypatch.setattr(world.brake, "state", lambda: meanwhile.append(light.look()) or state())
    assert light.look().scope is Scope.ALL
    assert meanwhile == [None]
    assert light.last().scope is Scope.ALL


def test_a_first_pull_that_is_too_far_back_is_not_made_up(world, client, person, monkeypatch):
    monkeypatch.setattr(brakes, "MOST_PULLS", 2)
    for by in ("ada", "bob", "cy"):
        world.brake.put(Scope.ALL, by=by)
    told = client.get(BRAKE).json()["first"]
    assert (told["by"], told["earlier"]) == ("bob", True)
    assert "At least since" in person.get("/brake/release").text


def test_a_second_pull_does_not_hide_who_pulled_first_and_why(world, client, person):
    client.post(f"{BRAKE}/pull", json={"why": "the CRM is <b>ill</b>"})
    world.brake.put(Scope.ALL, by="ada", why="so is the ERP")
    told = client.get(BRAKE).json()
    assert (told["by"], told["why"]) == ("ada", "so is the ERP")
    assert told["first"]["by"] == "operator@test"
    assert [one["by"] for one in told["history"]] == ["operator@test", "ada"]
    for path in ("/brake", "/brake/release", "/groups"):
        page = person.get(path).text
        assert page.index("the CRM is &lt;b&gt;ill") < page.index("so is the ERP")
