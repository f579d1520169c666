from __future__ import annotations

import logging

import pytest
from tests.contracts.alerts import alert_of

from angzarr.adapters.structlog.alerts import LogSink
from angzarr.analysis.alerts.alert import AlertSeverity


@pytest.mark.parametrize(
    ("fields", "level", "event"),
    [({}, "error", "dlq_alert"), ({"severity": AlertSeverity.WARNING}, "warning", "dlq_alert"),
     ({"resolved": True}, "info", "dlq_alert_resolved")],
)  # fmt: skip
def test_an_alert_is_one_line_of_its_level_with_its_fields(lines, fields, level, event):
    alert = alert_of(**fields, link="")
    assert LogSink().send(alert).arrived
    (said,) = lines()
    assert (said["event"], said["level"], said["logger"]) == (event, level, "angzarr.alerts")
    assert (said["alert_id"], said["kind"], said["group"]) == (alert.id, "new_group", "f1")
    assert (said["text"], said["todo"]) == (alert.text, alert.todo)
    assert "link" not in said


def test_lines_that_nobody_reads_are_not_written(lines, angzarr_log):
    angzarr_log.setLevel(logging.CRITICAL)
    assert LogSink().send(alert_of()).arrived
    assert lines() == []
