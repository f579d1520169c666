"""Facts over HTTP and on pages: asked, appended once, and shown with the entry of their event."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from angzarr.dashboard.api.route import PREFIX
from angzarr.dashboard.fact_services import AWAY, MOST_RUNS
from angzarr.errors import ConfigurationError, StoreUnavailable
from angzarr.facts.fact import Cost
from angzarr.facts.query import EVERY, FactQuery
from angzarr.settings.dashboard import Role
from contracts.fact_reader import a_cost, an_end, an_error
from contracts.facts import AT, a_fact, facts_of
from dashboard_caller import api, browser, problem

EVIL = "<script>alert(1)</script>\u202e"
ALL = f"{PREFIX}/facts"
SEED = "/v1/facts"
BODY = {"id": "k-1", "type": "lifecycle", "subtype": "tool_usage", "data": {"n": 1}}


@pytest.fixture
def client(world):
    return api(world, Role.VIEWER)


@pytest.fixture
def operator(world):
    return api(world, Role.OPERATOR)


@pytest.fixture
def person(world):
    return browser(world, Role.VIEWER)


def add(world, *facts):
    for fact in facts:
        assert world.facts.add(fact) is None


def ids(told):
    return [one["id"] for one in told]


# -- reading over HTTP -----------------------------------------------------------------------


def test_facts_are_listed_newest_first_a_page_at_a_time(world, client):
    add(world, *(an_error(f"f{n}", n) for n in range(3)), an_end("end", 3))
    page = client.get(ALL, params={"limit": 2})
    assert ids(page.json()["facts"]) == ["end", "f2"]
    assert page.json()["facts"][1]["data"] == {"resolved": True, "resolution_fact_id": "end"}
    following = page.headers["Link"].partition("<")[2].partition(">")[0]
    rest = client.get(following).json()
    assert (ids(rest["facts"]), rest["next"]) == (["f1", "f0"], None)
    assert ids(client.get(ALL, params={"order": "oldest", "limit": 1}).json()["facts"]) == ["f0"]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"tenant_id": "t"}, ["b"]),
        ({"tool_id": "shop.sync", "type": "error"}, ["c"]),
        ({"event_id": "e", "subtype": "transient"}, ["c"]),
        ({"trace_id": "f" * 32}, ["a"]),
        ({"entity_id": "none"}, []),
        ({"asset_id": "printer-7"}, ["b"]),
        ({"by": "ann@desk"}, ["a"]),
        ({"since": "2026-05-04T04:00:00Z"}, ["c"]),
        ({"until": "2026-05-04T04:00:00Z"}, ["b", "a"]),
    ],
)
def test_facts_are_found_by_each_field(world, client, asked, found):
    add(
        world,
        a_fact("a", trace_id="f" * 32, data={"by": "ann@desk"}),
        a_fact("b", tenant_id="t", asset_id="printer-7", at=AT + timedelta(seconds=1)),
        an_error("c", 7200),
    )
    assert ids(client.get(ALL, params=asked).json()["facts"]) == found


@pytest.mark.parametrize("after", ["x", "eA", "MjAyNi0wMS0wMX54", "~", "ü"])
def test_what_is_no_cursor_is_refused(client, after):
    answer = client.get(ALL, params={"after": after})
    assert (answer.status_code, problem(answer)) == (400, "bad-cursor")


@pytest.mark.parametrize(
    "asked", [{"order": "random"}, {"limit": 0}, {"since": "5"}, {"colour": "red"}]
)
def test_a_question_that_does_not_fit_is_refused(client, asked):
    assert client.get(ALL, params=asked).status_code == 422


def test_one_fact_is_told_with_its_resolution_both_ways(world, client):
    add(world, an_error("a:1", 1), an_error("a:2", 2), an_end("end/3", 3))
    told = client.get(f"{ALL}/end%2F3").json()
    assert told["resolved_facts"] == ["a:1", "a:2"]
    assert ids(told["runs"]) == ["a:1", "a:2", "end/3"]
    assert client.get(f"{ALL}/a:1").json()["data"]["resolution_fact_id"] == "end/3"
    answer = client.get(f"{ALL}/none")
    assert (answer.status_code, problem(answer)) == (404, "not-found")


def test_facts_are_counted_of_the_last_day_unless_said(world, client):
    now = world.clock.now()
    add(
        world,
        an_error("new", at=now - timedelta(hours=1), event_id="e1"),
        a_fact("old", at=now - timedelta(days=2), event_id="e2"),
    )
    told = client.get(f"{ALL}/stats").json()
    assert told["counts"] == [{"type": "error", "subtype": "transient", "facts": 1}]
    since = (now - timedelta(days=3)).isoformat()
    told = client.get(f"{ALL}/stats", params={"by": "type,day", "since": since}).json()
    assert len(told["counts"]) == 2
    told = client.get(f"{ALL}/stats", params={"event_id": "e2", "by": "event"}).json()
    assert told["counts"] == [{"event": "e2", "facts": 1}]
    until = {"until": "0001-01-01T00:00:00Z"}
    assert client.get(f"{ALL}/stats", params=until).json()["counts"] == []
    assert client.get(f"{ALL}/stats", params={"by": "colour"}).status_code == 422
    assert client.get(f"{ALL}/stats", params={"person": "none"}).json()["counts"] == []


@pytest.mark.parametrize("path", [ALL, f"{ALL}/stats", f"{ALL}/x"])
def test_facts_that_cannot_be_asked_say_why(world, client, path):
    world.facts_away = ConfigurationError("facts are kept in no database: set facts.url")
    answer = client.get(path)
    assert (answer.status_code, problem(answer)) == (409, "not-set-up")
    assert "set facts.url" in answer.json()["detail"]
    world.facts_away = None
    world.facts.find = world.facts.get = world.facts.stats = _away
    answer = client.get(path)
    assert (answer.status_code, problem(answer)) == (503, "unavailable")
    assert "the database of facts is away" in answer.json()["detail"]


def _away(*_arguments, **_options):
    raise StoreUnavailable("away")


# -- appending over HTTP ---------------------------------------------------------------------


@pytest.mark.parametrize("path", [ALL, SEED])
def test_a_fact_is_appended_once_whoever_sends_it_again(world, operator, path):
    first = operator.post(path, json=BODY)
    assert first.status_code == 201
    assert first.json()["data"] == {"n": 1, "appended_by": "operator@test"}
    assert first.headers["Location"] == f"{ALL}/k-1"
    world.clock.sleep(timedelta(hours=1))
    again = api(world, Role.APPROVER).post(path, json=BODY)
    assert (again.status_code, again.json()) == (200, first.json())
    (kept,) = world.facts.find(EVERY).facts
    assert kept.data["appended_by"] == "operator@test"


@pytest.mark.parametrize(
    "change",
    [
        {"data": {"n": 2}}, {"data": {"n": True}}, {"data": {}}, {"subtype": "other"},
        {"tenant_id": "t"}, {"timestamp": "2026-01-01T00:00:00Z"}, {"resolves": "x"},
    ],
)  # fmt: skip
def test_another_body_under_the_same_id_changes_nothing(world, operator, change):
    before = operator.post(ALL, json=BODY).json()
    answer = operator.post(ALL, json=BODY | change)
    assert (answer.status_code, problem(answer)) == (409, "fact-differs")
    assert "nothing was changed" in answer.json()["detail"]
    assert operator.get(f"{ALL}/k-1").json()["data"] == before["data"]


def test_a_fact_of_a_worker_is_not_overwritten_and_may_be_sent_again(world, operator):
    add(world, a_fact("k-1", subtype="tool_usage", data={"n": 1}))
    assert operator.post(ALL, json=BODY).status_code == 200
    assert operator.post(ALL, json=BODY | {"data": {"n": 2}}).status_code == 409


def test_a_whole_fact_is_kept_as_it_was_sent(world, operator):
    named = {name: f"{name}-1" for name in (
        "tenant_id", "entity_id", "tool_id", "event_id", "asset_id", "config_id",
        "config_version", "resolves", "from_entity", "to_entity",
    )}  # fmt: skip
    body = named | {
        "id": "cost", "type": "cost", "subtype": "tool_usage", "trace_id": "a" * 32,
        "timestamp": "2026-05-04T05:02:01.123456+02:00", "amount": "0.000000000000000001",
        "currency": "EUR", "data": {"units": {"tokens": 1200}, "list": [1, 2.5, None, "ü"]},
    }  # fmt: skip
    told = operator.post(ALL, json=body)
    assert told.status_code == 201
    (kept,) = world.facts.find(FactQuery(type="cost")).facts
    assert kept.at == AT
    assert kept.cost == Cost(
        amount=Decimal("0.000000000000000001"), currency="EUR", from_entity="from_entity-1",
        to_entity="to_entity-1",
    )  # fmt: skip
    shown = operator.get(f"{ALL}/cost").json()
    for name in (*named, "amount", "currency", "trace_id"):
        assert shown[name] == body[name]
    assert operator.post(ALL, json=body).status_code == 200


def deep(levels):
    return {"a": deep(levels - 1)} if levels else {}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"id": ""}, "pattern"),
        ({"id": "x" * 201}, "pattern"),
        ({"type": "Error"}, "pattern"),
        ({"subtype": "no way"}, "pattern"),
        ({"trace_id": "xyz"}, "pattern"),
        ({"colour": "red"}, "Extra"),
        ({"data": []}, "dictionary"),
        ({"data": {"a": "\x00"}}, "NUL"),
        ({"data": {"a\x00": 1}}, "NUL"),
        ({"data": {"a": 2**63}}, "64 bits"),
        ({"data": {"a": -(2**63)}}, "64 bits"),
        ({"data": deep(30)}, "levels"),
        ({"data": {"a": "x" * 40_000}}, "32768 bytes"),
        ({"data": {"appended_by": "me"}}, "leave it out"),
        ({"amount": "1", "currency": "EUR"}, "for facts of type cost"),
        ({"to_entity": "them"}, "for facts of type cost"),
        ({"type": "cost"}, "has an amount and a currency"),
        ({"type": "cost", "amount": "-1", "currency": "EUR"}, "an amount must be a number from"),
        ({"type": "cost", "amount": "NaN", "currency": "EUR"}, "from 0 on, not NaN"),
        ({"type": "cost", "amount": "1e3", "currency": "EUR"}, "at most one point between digits"),
        ({"type": "cost", "amount": ".5", "currency": "EUR"}, "at most one point between digits"),
        ({"type": "cost", "amount": "1", "currency": "eur"}, 'unknown currency "eur"'),
        ({"type": "cost", "amount": "1", "currency": "EUX"}, "unknown currency"),
        ({"type": "cost", "amount": 1, "currency": "EUR"}, "string"),
        ({"resolves": "k-1"}, "does not resolve itself"),
        ({"timestamp": 5}, "no time"),
    ],
)
def test_what_is_no_fact_is_refused_in_a_sentence(world, operator, change, said):
    answer = operator.post(ALL, json=BODY | change)
    assert (answer.status_code, problem(answer)) == (422, "invalid")
    assert said in answer.json()["errors"][0]["what"]
    assert "Value error" not in answer.text
    assert world.facts.find(EVERY).facts == ()


@pytest.mark.parametrize(
    "raw",
    [b'{"id": "k", "type": "a", "subtype": "b", "data": {"n": NaN}}',
     b'{"id": "k", "type": "a", "subtype": "b", "data": {"n": 1e999}}',
     b'{"id": "k", "id": "l", "type": "a", "subtype": "b"}',
     b'{"id": "k", "type": "a", "subtype": "b", "data": {"n": 1, "n": 2}}',
     b'{"id": "k",',
     b'{"id": "k", "data": ' + b'{"a":' * 5000 + b"1" + b"}" * 5001,
     b'{"id": "k", "type": "a", "subtype": "b", "data": {"n": "\\ud800"}}'],
)  # fmt: skip
def test_what_json_does_not_know_or_two_readers_read_differently_is_refused(world, operator, raw):
    for path in (ALL, SEED):
        answer = operator.post(path, content=raw, headers={"Content-Type": "application/json"})
        assert (answer.status_code, problem(answer)) == (422, "invalid")
    assert world.facts.find(EVERY).facts == ()


@pytest.mark.parametrize("path", [ALL, SEED])
def test_only_operators_append(world, client, path):
    answer = client.post(path, json=BODY)
    assert (answer.status_code, problem(answer)) == (403, "role")
    answer = api(world, None).post(path, json=BODY)
    assert (answer.status_code, problem(answer)) == (401, "unauthorized")
    answer = api(world, Role.OPERATOR).post(path, content=b"id=1")
    assert (answer.status_code, problem(answer)) == (415, "no-json")
    assert world.facts.find(EVERY).facts == ()


def test_an_append_where_facts_are_away_is_told_as_such(world, operator):
    world.facts.add = _away
    answer = operator.post(SEED, json=BODY)
    assert (answer.status_code, problem(answer)) == (503, "unavailable")


# -- pages -----------------------------------------------------------------------------------


def test_the_page_lists_facts_and_links_what_resolved_them(world, person):
    add(world, an_error("one:error", data={"error_code": "HTTP_503", "error_message": EVIL}))
    add(world, an_end("end", 1), a_cost("cost", "0.10"))
    html = person.get("/facts").text
    for text in ("HTTP_503", "/facts/one%3Aerror", 'href="/facts/end">handled', "0.10 EUR"):
        assert text in html
    assert "<script>alert" not in html
    assert "\u202e" not in html
    assert "No fact fits" in person.get("/facts?tenant_id=none").text


def test_the_page_walks_to_older_facts(world, person):
    add(world, *(a_fact(f"f-{n:03}", at=AT + timedelta(seconds=n)) for n in range(60)))
    html = person.get("/facts").text
    assert "f-059" in html
    assert "f-009" not in html
    older = html.partition('rel="next" href="')[2].partition('"')[0].replace("&amp;", "&")
    assert "f-009" in person.get(f"/facts{older}").text
    assert person.get("/facts?after=x").status_code == 400


def test_a_fact_has_a_page_with_its_attempts_and_both_ways(world, person):
    add(world, an_error("one", 1, data={"error_code": "HTTP_503"}), an_end("end", 3))
    html = person.get("/facts/end").text
    assert "It resolved" in html
    assert 'href="/facts/one"' in html
    html = person.get("/facts/one").text
    assert "Resolved by" in html
    assert "this one" in html
    assert person.get("/facts/none").status_code == 404


def test_a_site_without_a_database_of_facts_says_what_to_set(world, person):
    world.facts_away = ConfigurationError("facts are in no database: set facts.url")
    html = person.get("/facts").text
    assert "set facts.url" in html


def test_the_page_of_an_entry_shows_every_attempt_before_the_last(world, person):
    (entry,) = world.file(1)
    world.fail(entry, attempts=3)
    html = person.get(f"/entries/{entry.id}").text
    assert html.count("1,500 ms") == 3
    for text in ("HTTP_503", "&lt;b&gt;away&lt;/b&gt; 0", "away&lt;/b&gt; 2", "/facts/run%3A0",
                 f"/facts?event_id={entry.event_id}"):  # fmt: skip
        assert text in html


def test_an_entry_with_very_many_attempts_shows_the_last(world, person):
    (entry,) = world.file(1)
    world.fail(entry, attempts=MOST_RUNS + 5)
    html = person.get(f"/entries/{entry.id}").text
    assert f"The last {MOST_RUNS} of them" in html
    assert html.count("1,500 ms") == MOST_RUNS


def test_an_entry_without_facts_says_so(world, person):
    (entry,) = world.file(1)
    assert "No attempt is recorded" in person.get(f"/entries/{entry.id}").text


def test_facts_that_are_away_break_no_page_of_an_entry_and_are_left_alone(world, person):
    (entry,) = world.file(1)
    world.facts_away = StoreUnavailable("away")
    for _ in range(3):
        answer = person.get(f"/entries/{entry.id}")
        assert answer.status_code == 200
        assert "The database of facts is away, so the attempts are not known." in answer.text
    assert world.facts_asked == 1
    world.facts_away = None
    world.fail(entry)
    world.clock.sleep(AWAY)
    assert "HTTP_503" in person.get(f"/entries/{entry.id}").text


def test_an_entry_says_what_to_set_where_facts_are_in_no_database(world, person):
    (entry,) = world.file(1)
    world.facts_away = ConfigurationError("facts are in no database: set facts.url")
    html = person.get(f"/entries/{entry.id}").text
    assert "Attempts are not known: facts are in no database: set facts.url." in html


def test_an_api_description_has_the_facts_and_not_the_seeds_path(world, client):
    paths = client.get(f"{PREFIX}/openapi.json").json()["paths"]
    assert set(paths[ALL]) == {"get", "post"}
    assert SEED not in paths


def test_many_facts_are_listed_a_thousand_at_a_time(world, client):
    add(world, *facts_of("many", 1_200))
    page = client.get(ALL, params={"limit": 1000}).json()
    assert len(page["facts"]) == 1000
    assert client.get(ALL, params={"limit": 1001}).status_code == 422


# -- acts that have no end -------------------------------------------------------------------------


def test_a_page_says_in_words_that_an_act_has_no_end(world, client, person):
    data = {"by": "ann", "act": "configuration_put", "subject": EVIL}
    add(
        world,
        a_fact("b1", subtype="act_begun", data=data),
        a_fact("b2", subtype="act_begun", data=data),
        a_fact("failed", subtype="act_failed", data=data | {"error": "no disk"}, resolves="b2"),
    )
    listed = person.get("/facts").text
    assert "no end" in listed
    assert "by ann: configuration_put of &lt;script&gt;" in listed
    assert "failed: no disk" in listed
    assert "its process is still at it, was killed, or could not" in person.get("/facts/b1").text
    assert 'Ended by <a href="/facts/failed">' in person.get("/facts/b2").text
    told = client.get(f"{ALL}/b1").json()["data"]
    assert (told["ended"], told["end_fact_id"]) == (False, None)
    told = client.get(f"{ALL}/b2").json()["data"]
    assert (told["ended"], told["end_fact_id"]) == (True, "failed")


def test_a_person_ends_an_act_by_a_fact_that_names_its_beginning(world, operator, client):
    add(world, a_fact("b1", subtype="act_begun", data={"act": "a", "subject": "b"}))
    seen = {"id": "seen", "type": "lifecycle", "subtype": "act_checked", "resolves": "b1"}
    assert operator.post(ALL, json=seen).status_code == 201
    assert client.get(f"{ALL}/b1").json()["data"]["end_fact_id"] == "seen"
