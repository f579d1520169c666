"""Our own lines: those of a bound logger to the letter, whoever formats them."""

from __future__ import annotations

import io
import logging
import re
from collections import UserDict
from datetime import UTC, datetime

import pytest
import structlog
from structlog.stdlib import ProcessorFormatter
from tests.contracts.alerts import alert_of
from tests.contracts.facts import AT, a_fact

from angzarr.adapters.structlog import logs
from angzarr.adapters.structlog.logs import bound_logger, dress, formatter, name_by
from angzarr.adapters.structlog.own_lines import LogSink, OwnLines, StructlogFactLog
from angzarr.analysis.alerts.alert_form import AlertSeverity
from angzarr.runtime.group_commit import GROUP_COMMIT

NAME = "angzarr.facts"
FIELDS = {
    "fact_id": "a",
    "at": datetime(2026, 1, 1, tzinfo=UTC),
    "data": {"outcome": "handled", "é": None, "deep": [1, {"x": object}]},
    "customer": "mine",
}
LEVELS = (logging.INFO, logging.WARNING, logging.ERROR)
FORMATTERS = {
    "our JSON": formatter(json=True),
    "our text": formatter(json=False),
    "our text in colour": formatter(json=False, colors=True),
    "a plain one": logging.Formatter(
        "%(levelname)s %(name)s %(message)s %(process)d %(threadName)s"
    ),
    "another of structlog's": ProcessorFormatter(
        processors=[
            ProcessorFormatter.remove_processors_meta,
            structlog.processors.LogfmtRenderer(sort_keys=True),
        ]
    ),
}


@pytest.fixture
def both(angzarr_log, stream):
    """Write one line in both ways and return both as text, without their times."""

    def write(level, event, fields):
        written = []
        own, bound = OwnLines(NAME), bound_logger({}, NAME)
        assert own.wanted(level)
        for call in (own.write, lambda *line: bound.log(line[0], line[1], **line[2])):
            call(level, event, fields)
            written.append(re.sub(r"20\d\d-\d\d-\d\dT[\d:.]+Z", "<now>", stream.getvalue()))
            stream.seek(0)
            stream.truncate()
        return written

    return write


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", FORMATTERS)
def test_a_line_is_that_of_a_bound_logger(both, angzarr_log, kind, level):
    dress(angzarr_log, json=True)
    angzarr_log.handlers[0].setFormatter(FORMATTERS[kind])
    own, bound = both(level, "fact", FIELDS)
    assert own == bound != ""


def test_what_is_bound_around_it_is_said_where_it_says_nothing_itself(
    both, angzarr_log, monkeypatch
):
    dress(angzarr_log, json=True)
    monkeypatch.setattr(logs, "_TELLERS", [])
    name_by(lambda: {"event_id": "e-1", "customer": "of the delivery"})
    with structlog.contextvars.bound_contextvars(request="r-1", customer="of the context"):
        own, bound = both(logging.INFO, "fact", FIELDS)
    assert own == bound
    assert '"request":"r-1","event_id":"e-1"' in own
    assert '"customer":"mine"' in own


def test_an_applications_own_structlog_writes_it(both, angzarr_log):
    structlog.configure(processors=[structlog.processors.KeyValueRenderer(sort_keys=True)])
    dress(angzarr_log, json=True)
    own, bound = both(logging.INFO, "fact", {"a": 1})
    assert own == bound == "a=1 event='fact'\n"


def test_a_structlog_that_nobody_configured_writes_it(both, capsys):
    own, bound = both(logging.INFO, "fact", {"a": 1})
    assert own == bound


def test_made_before_the_configuration_it_follows_it(angzarr_log, stream):
    early = OwnLines(NAME)
    early.write(logging.INFO, "before", {})
    dress(angzarr_log, json=True)
    early.write(logging.INFO, "after", {})
    assert stream.getvalue().splitlines()[-1].startswith('{"event":"after","logger"')


def test_filters_and_record_factories_of_the_process_hold(lines, angzarr_log, monkeypatch):
    class Marked(logging.LogRecord):
        pass

    made = []
    monkeypatch.setattr(logging, "_logRecordFactory", Marked)
    angzarr_log.handlers[0].addFilter(lambda record: made.append(type(record)) or len(made) > 1)
    OwnLines(NAME).write(logging.INFO, "dropped", {})
    OwnLines(NAME).write(logging.INFO, "kept", {})
    assert made == [Marked, Marked]
    assert [line["event"] for line in lines()] == ["kept"]


def test_a_logger_that_was_disabled_says_nothing(lines, monkeypatch):
    monkeypatch.setattr(logging.getLogger(NAME), "disabled", True)
    assert not OwnLines(NAME).wanted(logging.INFO)
    OwnLines(NAME).write(logging.INFO, "fact", {})
    assert lines() == []


def test_the_fields_given_are_left_as_they_were(lines):
    given = {"a": 1}
    OwnLines(NAME).write(logging.INFO, "fact", given)
    assert given == {"a": 1}


def test_a_stream_of_several_threads_has_whole_lines(angzarr_log):
    from concurrent.futures import ThreadPoolExecutor

    stream = io.StringIO()
    angzarr_log.handlers[0].setStream(stream)
    dress(angzarr_log, json=True)
    own = OwnLines(NAME)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: own.write(logging.INFO, "fact", {"n": n}), range(200)))
    # Threads of other tests may still log here.
    mine = (re.fullmatch(r'\{"n":(\d+),.*\}', line) for line in stream.getvalue().splitlines())
    assert sorted(int(one[1]) for one in mine if one) == list(range(200))


class Unreadable(UserDict):
    def __getitem__(self, key):
        raise RuntimeError("never read")


def test_each_fact_is_one_line_in_order(lines):
    log = StructlogFactLog()
    log.append([a_fact("a", tool_id="shop.sync", data={"outcome": "handled"}), a_fact("b")])
    log.append([a_fact("c")])
    log.close()
    first, *rest = lines()
    del first["timestamp"]
    assert first == {
        "event": "fact",
        "fact_id": "a",
        "type": "lifecycle",
        "subtype": "handled",
        "at": AT.isoformat(),
        "tool_id": "shop.sync",
        "data": {"outcome": "handled"},
        "level": "info",
        "logger": "angzarr.facts",
    }
    assert [line["fact_id"] for line in rest] == ["b", "c"]


@pytest.fixture
def gathering():
    """A worker whose completions are gathered."""
    GROUP_COMMIT.open()
    yield
    GROUP_COMMIT.close()


def without_pytests(logger):
    """Take off the handlers that pytest puts on it: they want each record."""
    logger.handlers = logger.handlers[:1]


@pytest.mark.parametrize("level", LEVELS)
def test_a_line_is_the_same_where_no_record_is_made_of_it(both, angzarr_log, level):
    dress(angzarr_log, json=True)
    without_pytests(angzarr_log)
    own, bound = both(level, "fact", FIELDS)
    assert own == bound != ""


def test_facts_may_wait_for_their_acknowledgement_and_are_the_same_lines(
    lines, angzarr_log, gathering
):
    without_pytests(angzarr_log)
    log = StructlogFactLog()
    log.append([a_fact("a", at=AT)])
    log.append([a_fact("a", at=AT)], before_ack=True)
    log.append([a_fact("b", at=AT)], before_ack=True)
    assert [line["fact_id"] for line in lines()] == ["a"]
    GROUP_COMMIT.write()
    at_once, waited, other = lines()
    del at_once["timestamp"], waited["timestamp"]
    assert waited == at_once
    assert other["fact_id"] == "b"


def test_a_closed_log_has_written_what_waited(lines, angzarr_log, gathering):
    without_pytests(angzarr_log)
    log = StructlogFactLog()
    log.append([a_fact("a")], before_ack=True)
    log.close()
    assert len(lines()) == 1


@pytest.mark.parametrize("kind", FORMATTERS)
def test_what_other_formatters_show_waits_for_nothing(angzarr_log, stream, gathering, kind):
    dress(angzarr_log, json=True)
    angzarr_log.handlers[0].setFormatter(FORMATTERS[kind])
    without_pytests(angzarr_log)
    StructlogFactLog().append([a_fact("a")], before_ack=True)
    assert (stream.getvalue() == "") == (kind == "our JSON")


def test_names_in_data_cannot_take_the_place_of_a_facts_own(lines):
    StructlogFactLog().append([a_fact(data={"event": "x", "type": "y", "level": "z"})])
    (line,) = lines()
    assert (line["event"], line["type"], line["level"]) == ("fact", "lifecycle", "info")


def test_nothing_is_read_where_the_level_is_off(lines, angzarr_log):
    angzarr_log.setLevel(logging.WARNING)
    StructlogFactLog().append([a_fact(data=Unreadable(a=1))])
    assert lines() == []


def test_a_fact_that_cannot_be_read_fails_no_delivery(lines):
    StructlogFactLog().append([a_fact(data=Unreadable(a=1))])
    (line,) = lines()
    assert (line["event"], line["level"]) == ("fact_not_logged", "error")


def test_closing_twice_is_safe(lines):
    log = StructlogFactLog()
    log.close()
    log.close()
    log.append([a_fact()])
    assert len(lines()) == 1


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


def test_a_fact_that_cannot_be_read_keeps_no_other_that_waits(lines, angzarr_log, gathering):
    without_pytests(angzarr_log)
    log = StructlogFactLog()
    for fact in (a_fact("a"), a_fact("b", data=Unreadable(a=1)), a_fact("c")):
        log.append([fact], before_ack=True)
    GROUP_COMMIT.write()
    assert [line.get("fact_id", line["event"]) for line in lines()] == ["a", "fact_not_logged", "c"]


def test_a_fact_waits_for_nothing_where_its_line_says_what_is_around_it(
    lines, angzarr_log, gathering
):
    without_pytests(angzarr_log)
    with structlog.contextvars.bound_contextvars(request="r-1"):
        StructlogFactLog().append([a_fact("a")], before_ack=True)
    assert [line["request"] for line in lines()] == ["r-1"]


def test_what_waited_is_written_as_records_where_a_handler_has_come(lines, angzarr_log, gathering):
    without_pytests(angzarr_log)
    log, seen = StructlogFactLog(), []
    log.append([a_fact("a")], before_ack=True)
    newcomer = logging.Handler()
    newcomer.emit = lambda record: seen.append(record.msg["fact_id"])
    angzarr_log.addHandler(newcomer)
    GROUP_COMMIT.write()
    assert seen == ["a"]
    assert [line["fact_id"] for line in lines()] == ["a"]
