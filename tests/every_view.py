"""Every view of a ledger's rows, asked one after the other: what does not render fails a test."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from html import unescape
from urllib.parse import urljoin

from angzarr.adapters.sql.replay_jobs.store import SqlReplayJobs
from angzarr.analysis.alerts.alert import body_of
from angzarr.analysis.alerts.alert_form import BodyFormat
from angzarr.analysis.alerts.alert_raiser import AlertRaiser
from angzarr.analysis.alerts.alert_state import AlertRules
from angzarr.analysis.alerts.alert_text import Speaker
from angzarr.dashboard.api.route import PREFIX

#: Pages that show rows of the ledger, and what asks a person first.
_ABOUT_ROWS = re.compile(r"/(groups|entries|alerts)\b(?!.*/(replay|edit|acts|export)\b)")
_LINK = re.compile(r'<a [^>]*href="([^"]*)"')


class _Meters:
    def raised(self, alert):
        pass

    def show(self, depth):
        pass


def look_for_alerts(*, ledger, groups, alerts, clock):
    """Raise every alert that the rows give cause for; return them."""
    alerting = AlertRaiser(
        groups=groups, ledger=ledger, jobs=SqlReplayJobs(ledger._database, clock), alerts=alerts,
        rules=AlertRules(oldest_after=timedelta(0)), clock=clock, chance=lambda: 0.5,
        speaker=Speaker("https://dlq.example.com/groups/{group}?d={domain}&h={handler}"),
        route=lambda _alert: ("log",), meters=_Meters(), every=timedelta(seconds=5),
        keep=timedelta(days=90), at_once=10, tell_resolved=True, close=lambda: None,
    )  # fmt: skip
    raised = alerting.look()
    for one in raised:
        for form in BodyFormat:
            json.loads(body_of(one, form))
    return raised


def ask_the_api(client, entry_ids):
    """Ask for each row by each route, and walk every page by the cursors that it names."""
    for path in ("stats", "alerts", "entries/export?format=csv", "entries/export"):
        assert client.get(f"{PREFIX}/{path}").status_code == 200, path
    letters = client.get(f"{PREFIX}/entries/export?letters=true")
    assert letters.status_code == 200
    assert len([json.loads(line) for line in letters.content.splitlines()]) == len(entry_ids)
    walked = _walked(client, "entries")
    assert {one["id"] for one in walked} == set(entry_ids)
    for entry_id in entry_ids:
        for more in ("", "/configuration", "/explanation"):
            answer = client.get(f"{PREFIX}/entries/{entry_id}{more}")
            assert answer.status_code == 200, answer.text
            answer.json()
    groups = _walked(client, "groups?open_only=false")
    assert {one["fingerprint"] for one in groups} == {one["fingerprint"] for one in walked}
    for one in groups:
        answer = client.get(f"{PREFIX}/groups/{one['address']}")
        assert answer.status_code == 200, (one["fingerprint"], answer.text)
        assert answer.json()["fingerprint"] == one["fingerprint"]
        of_it = client.get(f"{PREFIX}/entries", params={"fingerprint": one["address"]}).json()
        assert len(of_it["entries"]) == one["entries"], one["fingerprint"]


def _walked(client, path):
    """Return all rows of *path*, which is walked one row a page."""
    found, after = [], ""
    key = path.partition("?")[0]
    while True:
        answer = client.get(f"{PREFIX}/{path}", params={"limit": 1, "after": after})
        assert answer.status_code == 200, answer.text
        page = answer.json()
        found += page[key]
        after = page["next"]
        if not after:
            return found


def follow_the_pages(client, begin=("/groups?open_only=false", "/entries", "/alerts")):
    """Follow every link of every page to the pages behind it; return how many there were."""
    left, seen = list(begin), set(begin)
    while left:
        path = left.pop()
        page = client.get(path)
        assert page.status_code in {200, 409}, (path, page.status_code, page.text)
        for link in map(unescape, _LINK.findall(page.text)):
            where = urljoin(f"http://testserver{path}", link).removeprefix("http://testserver")
            if where not in seen and _ABOUT_ROWS.match(where):
                seen.add(where)
                left.append(where)
    return seen
