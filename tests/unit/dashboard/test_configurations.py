"""Pinned configurations over HTTP and on the page of a replay: shown before, chosen, sent."""

from __future__ import annotations

import json
import re

import pytest

from angzarr.dashboard.api.route import PREFIX
from angzarr.errors import ConfigurationError, StoreUnavailable
from angzarr.events import headers as names
from contracts.configuration import draft
from contracts.ledger import message_of
from dashboard_caller import hidden, problem

NEWEST = {"pricing": "2"}


@pytest.fixture
def world(world):
    for value in ('{"net":"1.10"}', '{"net":"<1.20>"}'):
        world.configurations.put(draft("pricing", value))
    return world


def file(world, pins='{"pricing": "1", "gone": "5"}'):
    said = {names.CONFIG_PINS: pins} if pins else {}
    (entry,) = world.file(1, message=message_of("e0", **said))
    return entry


def job_of(world, answer):
    assert answer.status_code == 303, answer.text
    return world.jobs.all[answer.headers["location"].removeprefix("/jobs/")]


def test_a_program_reads_what_the_newest_versions_change(client, world):
    told = client.get(f"{PREFIX}/entries/{file(world).id}/configuration").json()
    assert told["pinned"] == {"pricing": "1", "gone": "5"}
    assert told["newest"] == NEWEST
    assert told["differences"] == [
        {"id": "pricing", "before": "1", "after": "2",
         "changes": [{"pointer": "/net", "before": '"1.10"', "after": '"<1.20>"'}]}
    ]  # fmt: skip


def test_of_an_event_that_is_pinned_to_nothing_no_store_is_asked(client, world):
    world.configurations_away = StoreUnavailable("away")
    told = client.get(f"{PREFIX}/entries/{file(world, pins=None).id}/configuration").json()
    assert told == {"pinned": {}, "newest": {}, "differences": []}


def test_a_program_names_the_versions_of_a_job(client, world):
    entry = file(world)
    asked = {"entry_ids": [entry.id], "plan": {"config": NEWEST}}
    assert client.post(f"{PREFIX}/jobs", json=asked | {"dry_run": True}).json()["would_send"] == 1
    job = client.post(f"{PREFIX}/jobs", json=asked).json()
    assert world.jobs.all[job["id"]].plan.config == (("pricing", "2"),)


def test_a_program_names_the_versions_of_an_edit(client, world):
    entry = file(world)
    edited = {"data": {"total": 4}, "config": NEWEST}
    job = client.post(f"{PREFIX}/entries/{entry.id}/edits", json=edited).json()
    assert "with configuration pricing 2" in str(world.jobs.all[job["id"]].plan.order)


@pytest.mark.parametrize(
    "config",
    [{"pricing": ""}, {"pricing": 2}, {"p" * 101: "1"}, [], "newest", {"pricing": "x" * 65}],
)
def test_versions_that_are_none_are_refused(client, world, config):
    asked = {"entry_ids": [file(world).id], "plan": {"config": config}}
    assert client.post(f"{PREFIX}/jobs", json=asked).status_code == 422
    assert not world.jobs.all


@pytest.mark.parametrize("config", [{"pricing": "3"}, {"prices": "1"}, NEWEST | {"taxes": "1"}])
def test_versions_that_do_not_exist_begin_no_job(client, world, config):
    entry = file(world)
    for path, asked in (
        ("jobs", {"entry_ids": [entry.id], "plan": {"config": config}}),
        ("jobs", {"entry_ids": [entry.id], "plan": {"config": config}, "dry_run": True}),
        (f"entries/{entry.id}/edits", {"data": {"total": 4}, "config": config}),
        (f"entries/{entry.id}/edits", {"data": {"total": 4}, "config": config, "dry_run": True}),
    ):
        answer = client.post(f"{PREFIX}/{path}", json=asked)
        assert (answer.status_code, problem(answer)) == (422, "no-version")
    assert not world.jobs.all


def test_versions_are_not_taken_unseen_while_their_store_is_away(client, world):
    asked = {"entry_ids": [file(world).id], "plan": {"config": NEWEST}}
    world.configurations_away = StoreUnavailable("away")
    assert client.post(f"{PREFIX}/jobs", json=asked).status_code == 503
    assert not world.jobs.all


def test_the_page_of_a_replay_shows_what_changes_and_escapes_it(person, world):
    page = person.get(f"/entries/{file(world).id}/replay").text
    assert "<code>pricing</code>: 1 → 2" in page
    assert "&#34;&lt;1.20&gt;&#34;" in page
    assert "With the newest versions" in page


@pytest.mark.parametrize(
    ("chosen", "config"),
    [({}, ()), ({"config": json.dumps(NEWEST)}, (("pricing", "2"),))],
)
def test_it_is_replayed_from_its_page_as_its_person_said(person, world, chosen, config):
    path = f"/entries/{file(world).id}/replay"
    job = job_of(world, person.submit(path, path, **chosen))
    assert job.plan.config == config
    shown = person.get(f"/jobs/{job.id}").text
    assert ("<dt>Configurations</dt><dd>pricing 2</dd>" in shown) is bool(chosen)


def test_an_edit_carries_the_versions_that_its_person_chose_over_its_confirmation(person, world):
    path = f"/entries/{file(world).id}/edit"
    assert "<code>pricing</code>: 1 → 2" in person.get(path).text
    asked = person.submit(path, path, data='{"total": 4}', config=json.dumps(NEWEST))
    assert "with configuration pricing 2" in asked.text
    again = person.post(path, data=hidden(asked.text) | {"again": "1"})
    assert re.search('name="config" value="[^"]*" checked', again.text)
    job = job_of(world, person.post(f"{path}/replay", data=hidden(asked.text)))
    assert job.plan.config == (("pricing", "2"),)


@pytest.mark.parametrize(
    ("chosen", "config"), [({}, ()), ({"config": json.dumps(NEWEST)}, (("pricing", "2"),))]
)
def test_a_group_is_replayed_with_the_versions_that_its_person_chose(person, world, chosen, config):
    path = f"/groups/{file(world).fingerprint}/replay"
    page = person.get(path).text
    assert "<code>pricing</code>: 1 → 2 for 1 of them" in page
    plan = {"stages": "1", "in_flight": "5", "halt_percent": "20"} | chosen
    refused = person.submit(path, path, **plan | {"halt_percent": "x"})
    assert (" checked>With the newest" in refused.text) is bool(chosen)
    assert job_of(world, person.submit(path, path, **plan)).plan.config == config


@pytest.mark.parametrize("config", ["{", "[1]", "7", '{"a b": "1"}', '{"a": 1}', "[" * 9000])
def test_a_form_that_was_made_up_is_refused(person, world, config):
    path = f"/entries/{file(world).id}/replay"
    assert person.submit(path, path, config=config).status_code == 422
    assert not world.jobs.all


@pytest.mark.parametrize("error", [StoreUnavailable("away"), ConfigurationError("set it")])
def test_where_the_store_is_away_it_can_still_be_replayed_as_pinned(person, client, world, error):
    entry = file(world)
    path = f"/entries/{entry.id}/replay"
    world.configurations_away = error
    assert "newer versions of configurations is not known" in person.get(path).text
    assert job_of(world, person.submit(path, path)).plan.config == ()
    status = client.get(f"{PREFIX}/entries/{entry.id}/configuration").status_code
    assert status == (503 if isinstance(error, StoreUnavailable) else 409)


def test_a_page_without_pins_says_nothing_of_versions(person, world):
    page = person.get(f"/entries/{file(world, pins=None).id}/replay").text
    assert "newest versions" not in page
