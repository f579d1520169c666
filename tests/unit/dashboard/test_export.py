"""Entries and letters as a stream: what it holds, for whom, and how it breaks off."""

from __future__ import annotations

import csv
import html
import json
import re
import socket
import threading
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from http.client import HTTPConnection, IncompleteRead
from types import SimpleNamespace

import pytest

from angzarr.analysis.ledger.export import letter_lines
from angzarr.dashboard import server as connections
from angzarr.dashboard.api import entries as exporting
from angzarr.dashboard.api.route import PREFIX
from angzarr.dashboard.server import GuardedConnection, bind, server_of
from angzarr.dashboard.shell import MOST_EACH
from angzarr.dead_letters.codec import from_line
from angzarr.errors import LedgerUnavailable
from angzarr.settings.dashboard import Role
from contracts.ledger import letter_of, message_of
from dashboard_caller import api, browser
from dashboard_world import TOKENS
from polling import wait_until

EXPORT = f"{PREFIX}/entries/export"


@pytest.fixture
def client(world):
    return api(world, Role.VIEWER)


def test_entries_are_lines_of_json_or_csv(world, client):
    filed = {one.id for one in world.file(5)}
    answer = client.get(EXPORT)
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert {json.loads(line)["id"] for line in answer.text.splitlines()} == filed
    answer = client.get(f"{EXPORT}?format=csv")
    assert answer.headers["content-disposition"] == 'attachment; filename="angzarr-entries.csv"'
    assert {row["id"] for row in csv.DictReader(answer.text.splitlines())} == filed


@pytest.mark.parametrize(
    ("query", "count"), [("event_id=e1", 1), ("status=held", 0), ("limit=2", 2), ("domain=x", 0)]
)
def test_the_filter_is_that_of_the_list(world, client, query, count):
    world.file(3)
    assert len(client.get(f"{EXPORT}?{query}").text.splitlines()) == count


@pytest.mark.parametrize(
    "query", ["limit=100001", "limit=0", "format=xlsx", "letters=true&format=csv", "after=x"]
)
def test_what_cannot_be_exported_is_refused(client, query):
    assert client.get(f"{EXPORT}?{query}").status_code == 422


def test_letters_are_for_operators_and_can_be_imported(world, client):
    world.file(2)
    refused = client.get(f"{EXPORT}?letters=true")
    assert (refused.status_code, refused.json()["type"].split(":")[-1]) == (403, "role")
    answer = api(world).get(f"{EXPORT}?letters=true")
    letters = [from_line(line.encode()).letter for line in answer.text.splitlines()]
    assert sorted(one.event.id for one in letters) == ["e0", "e1"]


def test_a_ledger_that_is_away_is_told_before_the_first_byte(world, client, monkeypatch):
    monkeypatch.setattr(world.ledger, "get_failed_events", away)
    assert client.get(f"{EXPORT}?format=csv").status_code == 503


def away(*_arguments, **_options):
    raise LedgerUnavailable("away")


def test_an_export_that_breaks_off_never_looks_whole(world, monkeypatch):
    """The second page cannot be read: the connection of a real server ends without the end."""
    monkeypatch.setattr("angzarr.analysis.replay.bulk_actions.LONGEST_PAGE", 2)
    monkeypatch.setattr("angzarr.dashboard.api.entries._CHUNK", 1)
    world.file(3)
    get = world.ledger.get_failed_events

    def goes_away(*arguments, **options):
        return away() if options["after"] else get(*arguments, **options)

    monkeypatch.setattr(world.ledger, "get_failed_events", goes_away)
    with served(world) as port, closing(HTTPConnection("127.0.0.1", port, timeout=60)) as asking:
        asking.request("GET", EXPORT, headers={"X-API-Key": TOKENS[Role.VIEWER]})
        answer = asking.getresponse()
        assert answer.status == 200
        with pytest.raises(IncompleteRead) as broken:
            answer.read()
    assert broken.value.partial.count(b"\n") == 2
    assert not world.app._app.state.streams._open


@contextmanager
def served(world, server=None):
    server = server or server_of(world.site)
    with bind("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            wait_until(lambda: server.started)
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(60)


def large(world, size):
    letter = replace(message_of("e0"), body=json.dumps([["x" * size], {}, {}]).encode())
    return world.ledger.add_failed_event(letter_of("e0", message=letter))


@pytest.mark.parametrize("path", [f"{EXPORT}?letters=true", f"{PREFIX}/entries/ID"])
def test_who_does_not_read_what_he_asked_for_is_cut_off(world, monkeypatch, path):
    """More than the buffers of a kernel hold: closing it would wait for ever."""
    monkeypatch.setattr(connections, "READ_TIME", 0.1)
    path = path.replace("ID", large(world, 12_000_000).id)
    server, token = server_of(world.site), TOKENS[Role.OPERATOR]
    with served(world, server) as port, socket.socket() as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.connect(("127.0.0.1", port))
        request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {token}\r\n\r\n"
        lazy.sendall(request.encode())
        assert lazy.recv(12) == b"HTTP/1.1 200"
        wait_until(lambda: not server.server_state.connections)
        wait_until(lambda: not world.app._app.state.streams._open)


def test_who_reads_slowly_is_not_cut_off():
    aborted = []
    waiting = iter([100_000, 60_000, 60_000, 20_000, 20_000, 19_000])
    transport = SimpleNamespace(
        get_write_buffer_size=lambda: next(waiting), abort=lambda: aborted.append(1)
    )
    loop = SimpleNamespace(call_later=lambda *_: None)
    connection = SimpleNamespace(transport=transport, loop=loop)
    connection._look_later = partial(GuardedConnection._look_later, connection)
    connection._look = lambda: None
    connection._look_later()
    for cut in ([], [], [1]):
        GuardedConnection._look(connection)
        assert aborted == cut


def test_letters_are_sent_in_small_parts(world):
    entry = large(world, 1_000_000)
    lines = letter_lines(world.ledger, [entry])
    parts = list(exporting._chunks(lines))
    assert max(map(len, parts)) <= 2 * exporting._CHUNK
    assert b"".join(parts) == b"".join(letter_lines(world.ledger, [entry]))


def test_an_export_of_letters_counts_as_many_streams(world):
    world.file(1)
    client, streams = api(world), world.app._app.state.streams
    streams._open["operator@test"] = MOST_EACH - 9
    assert client.get(f"{EXPORT}?letters=true").status_code == 429
    assert client.get(EXPORT).status_code == 200
    streams._open["operator@test"] -= 1
    assert client.get(f"{EXPORT}?letters=true").status_code == 200
    assert streams._open["operator@test"] == MOST_EACH - 10


def test_few_exports_are_written_at_once(world, client):
    world.file(1)
    streams = world.app._app.state.streams
    streams._open["viewer@test"] = MOST_EACH
    assert client.get(EXPORT).status_code == 429
    del streams._open["viewer@test"]
    assert client.get(EXPORT).status_code == 200
    assert not streams._open


def test_the_page_of_entries_links_to_what_it_shows(world):
    world.file(3)
    person = browser(world)
    page = person.get("/entries?event_id=e1&status=").text
    links = [html.unescape(one) for one in re.findall(r'href="(/entries/export[^"]+)"', page)]
    assert len(links) == 3
    for link in links:
        *_, line = lines = person.get(link).text.splitlines()
        assert "OrderPlaced" in line
        assert len(lines) == (2 if "csv" in link else 1)
    viewer = browser(world, Role.VIEWER)
    assert "letters=true" not in viewer.get("/entries").text
    assert viewer.get("/entries/export?letters=true").status_code == 403
