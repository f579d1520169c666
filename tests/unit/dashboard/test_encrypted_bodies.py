"""Data that came encrypted: operators see them where they edit, viewers see `[sealed]`."""

from __future__ import annotations

import html
import logging
from dataclasses import replace

import pytest

from angzarr.adapters.celery.publish.body_offloader import BodyOffloader
from angzarr.adapters.cryptography.xaes import XaesCipher
from angzarr.dashboard.api.route import PREFIX
from angzarr.dead_letters.offloading_queue import without_body
from angzarr.dead_letters.sealed_letters import SealedLetters
from angzarr.payloads.body_sealer import SEALED, BodyKeys, BodySealer
from angzarr.settings.dashboard import Role
from contracts.ledger import letter_of, message_of
from dashboard_caller import api, browser, problem
from memory_payloads import MemoryPayloadStore

CANARY = "the canary sings"
LOG = "angzarr.dashboard.access_log"


@pytest.fixture(params=["in its letter", "in the store of letters"])
def entry(request, world):
    keys = BodyKeys(keys={"k1": b"k" * 32}, current="k1")
    sealer = BodySealer(keys=keys, cipher=XaesCipher())
    world.replayer = replace(world.replayer, bodies=SealedLetters(sealer=sealer))
    body = f'[[{{"card": "{CANARY}"}}], {{}}, {{}}]'.encode()
    offloader = BodyOffloader(None, 1000, sealer=sealer, seals_all=True)
    whole = letter_of(message=offloader.sealed(replace(message_of(), body=body)))
    letter = replace(whole, event=replace(whole.event, data=SEALED))
    if request.param == "in the store of letters":
        store = MemoryPayloadStore()
        world.replayer = replace(world.replayer, payloads=store)
        letter = without_body(letter, store.put(letter.message.body))
    (made,) = world.ledger.add_failed_events([letter])
    return made


def opened(caplog):
    lines = [one.getMessage() for one in caplog.records if one.name == LOG]
    return [line for line in lines if line.startswith("outcome=opened")]


def test_an_operator_sees_the_data_and_the_log_says_who_did(world, entry, caplog):
    caplog.set_level(logging.INFO, LOG)
    data = f"{PREFIX}/entries/{entry.id}/data"
    assert api(world).get(data).json()["data"] == {"card": CANARY}
    page = browser(world).get(f"/entries/{entry.id}/edit").text
    assert CANARY in html.unescape(page)
    draft = {"data": {"card": "x"}, "dry_run": True}
    told = api(world).post(f"{PREFIX}/entries/{entry.id}/edits", json=draft).json()
    assert CANARY in told["changes"][0]["before"]
    assert [line.split()[1] for line in opened(caplog)] == ["caller=operator@test"] * 3
    assert CANARY not in caplog.text


def test_a_viewer_sees_that_they_are_sealed(world, entry, caplog):
    caplog.set_level(logging.INFO, LOG)
    viewer = api(world, Role.VIEWER)
    assert viewer.get(f"{PREFIX}/entries/{entry.id}/data").status_code == 403
    told = viewer.get(f"{PREFIX}/entries/{entry.id}").json()
    assert told["event_data"] in {SEALED, None}
    assert CANARY not in str(told)
    site = browser(world, Role.VIEWER)
    assert CANARY not in html.unescape(site.get(f"/entries/{entry.id}").text)
    assert site.get(f"/entries/{entry.id}/edit").status_code == 403
    assert opened(caplog) == []


def test_an_edit_that_waits_for_approval_is_shown_by_role(world, entry, caplog):
    world.approves_edits = True
    caplog.set_level(logging.INFO, LOG)
    edit = {"data": {"card": f"{CANARY} twice"}}
    job = api(world).post(f"{PREFIX}/entries/{entry.id}/edits", json=edit).json()
    path = f"{PREFIX}/jobs/{job['id']}"
    seen = api(world, Role.APPROVER).get(path).json()["edit_review"]
    assert seen["changes"][0]["after"] == f'"{CANARY} twice"'
    assert seen["mark"]
    assert len(opened(caplog)) == 1
    hidden = api(world, Role.VIEWER).get(path).json()
    assert hidden["edit_review"]["changes"] == [
        {"pointer": "/card", "before": SEALED, "after": SEALED}
    ]
    assert hidden["edit_review"]["mark"] is None
    assert CANARY not in str(hidden)
    page = browser(world, Role.VIEWER).get(f"/jobs/{job['id']}").text
    assert CANARY not in html.unescape(page)
    assert SEALED in page
    assert len(opened(caplog)) == 1


def test_without_the_key_the_detail_says_which_one_is_missing(world, entry):
    world.replayer = replace(world.replayer, bodies=SealedLetters())
    answer = api(world).get(f"{PREFIX}/entries/{entry.id}/data")
    assert (answer.status_code, problem(answer)) == (409, "does-not-apply")
    assert "encrypted with the key 'k1'" in answer.json()["detail"]
