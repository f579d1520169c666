"""What Helm tells people after an installation is true of what was installed."""

from __future__ import annotations

import re
import shutil

import pytest

from chart.rendering import CHART, SETS, changed, render, values_of

AS_OBJECT = """
apiVersion: v1
kind: ConfigMap
metadata: {name: notes}
data:
  notes: {{ tpl (.Files.Get "files/NOTES.txt") . | toJson }}
"""


@pytest.fixture(scope="module")
def outspoken(tmp_path_factory):
    """A copy of the chart whose notes are an object: `helm template` does not show them."""
    copy = tmp_path_factory.mktemp("chart") / "angzarr"
    shutil.copytree(CHART, copy)
    (copy / "templates" / "NOTES.txt").rename(copy / "files" / "NOTES.txt")
    (copy / "templates" / "notes.yaml").write_text(AS_OBJECT)
    return copy


@pytest.mark.parametrize("name", SETS)
def test_notes_name_what_there_is(name, outspoken):
    chart = render(values_of(name), chart=outspoken)
    notes = chart.one("ConfigMap", "notes")["data"]["notes"]
    made = {f"{one['kind'].lower()}/{one['metadata']['name']}" for one in chart.workloads()}
    services = {f"service/{one['metadata']['name']}" for one in chart.all("Service")}
    said = set(re.findall(r"\b(?:deployment|statefulset|service)/[-a-z0-9]+", notes))
    assert made <= said <= made | services
    assert "<no value>" not in notes


def notes_of(outspoken, name, **changes):
    chart = render(changed(values_of(name), **changes), chart=outspoken)
    return chart.one("ConfigMap", "notes")["data"]["notes"]


def test_notes_say_what_is_missing(outspoken):
    alone = notes_of(outspoken, "beat")
    assert "No analysis worker runs" in alone
    assert "Nothing collects its metrics" in alone
    open_door = notes_of(outspoken, "network-policy", dashboard__forwardedAllowIPs=None)
    assert "Set dashboard.forwardedAllowIPs" in open_door
    assert "https://dlq.example.com" in open_door
    plain = notes_of(outspoken, "network-policy", dashboard__ingress__tls=None)
    assert "tokens travel in plain text" in plain
    assert "Volumes stay" in notes_of(outspoken, "spool")
