from __future__ import annotations

import json
import shlex
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.alerts import alert_of
from tests.contracts.ledger import letter_of
from tests.hand_clock import START
from tests.unit.analysis.alerted import HOUR, group_of, job_of

from angzarr.analysis.alerts.alert import AlertKind, as_text, body_of, generic_json, slack_json
from angzarr.analysis.alerts.alert_form import AlertSeverity, BodyFormat
from angzarr.analysis.alerts.alert_state import AlertFinding
from angzarr.analysis.alerts.alert_text import Speaker, check_link, link_of, trial_alert
from angzarr.analysis.ledger.failure import UNREADABLE
from angzarr.analysis.ledger.group import GroupStatus
from angzarr.analysis.ledger.transition import filed

SPEAKER = Speaker()
SINCE, LAST = START - HOUR, START


def of_group(kind, count=3, group=None, *, resolved=False):
    found = AlertFinding(kind, SINCE, LAST, count, resolved)
    return SPEAKER.of_group(found, group or group_of(entries=40), at=START, revision=7)


# -- words: what, since when, how many, what to do ---------------------------------------------

WORDS = {
    AlertKind.NEW_GROUP: (
        "New group of failures: TimeoutError in orders.sync. 3 entries failed in a way that was"
        " not seen before. Domain order, since 2026-01-01 11:00 UTC, last at 2026-01-01 12:00 UTC;"
        ' 40 open. Last message: "timed out after 3 s" Look: angzarr dlq list --group'
        " d2dfb1c0ffee0001. Once the cause is gone: angzarr dlq replay --group d2dfb1c0ffee0001"
    ),
    AlertKind.GROUP_GROWING: (
        "Group of failures grows: TimeoutError in orders.sync. 3 more entries; it has 40 entries"
        " now. Domain order, since 2026-01-01 11:00 UTC, last at 2026-01-01 12:00 UTC; 40 open."
        ' Last message: "timed out after 3 s" Look: angzarr dlq list --group d2dfb1c0ffee0001.'
        " Once the cause is gone: angzarr dlq replay --group d2dfb1c0ffee0001"
    ),
    AlertKind.GROUP_REGRESSED: (
        "Failed again: TimeoutError in orders.sync. 3 entries in all, the last"
        " of them after all others were closed. Domain order, since 2026-01-01 11:00 UTC, last at"
        ' 2026-01-01 12:00 UTC; 40 open. Last message: "timed out after 3 s" Look: angzarr dlq list'
        " --group d2dfb1c0ffee0001. Once the cause is gone: angzarr dlq replay --group"
        " d2dfb1c0ffee0001"
    ),
    AlertKind.POISON: (
        "Kills its worker: TimeoutError in orders.sync. 3 entries whose handler's process died"
        " again and again. Domain order, since 2026-01-01 11:00 UTC, last at 2026-01-01 12:00 UTC;"
        ' 40 open. Last message: "timed out after 3 s" Do not replay before it is understood. Look:'
        " angzarr dlq list --group d2dfb1c0ffee0001"
    ),
    AlertKind.MANY_ATTEMPTS: (
        "Dead letter after many attempts: TimeoutError in orders.sync. 3 entries of the last ones"
        " used many attempts in vain. Domain order, since 2026-01-01 11:00 UTC, last at 2026-01-01"
        ' 12:00 UTC; 40 open. Last message: "timed out after 3 s" Look: angzarr dlq list --group'
        " d2dfb1c0ffee0001. Once the cause is gone: angzarr dlq replay --group d2dfb1c0ffee0001"
    ),
    AlertKind.DEAD_LETTER: (
        "Message sent to DLQ: TimeoutError in orders.sync. 3 new in this group, which has 40"
        " entries. Domain order, since 2026-01-01 11:00 UTC, last at 2026-01-01 12:00 UTC; 40 open."
        ' Last message: "timed out after 3 s" Look: angzarr dlq list --group d2dfb1c0ffee0001. Once'
        " the cause is gone: angzarr dlq replay --group d2dfb1c0ffee0001"
    ),
}


@pytest.mark.parametrize("kind", WORDS)
def test_an_alert_says_what_since_when_how_many_and_what_to_do(kind):
    assert as_text(of_group(kind)) == WORDS[kind]


def test_the_end_of_a_cause_says_when_it_began():
    assert as_text(of_group(AlertKind.NEW_GROUP, 0, resolved=True)) == (
        "Resolved: New group of failures: TimeoutError in orders.sync. It began at 2026-01-01 11:00"
        " UTC. The cause is gone: nothing of it is open any more."
    )


def test_old_entries_name_the_oldest():
    entries = [filed(letter_of("e1"), START).entry, filed(letter_of("e2"), START).entry]
    found = AlertFinding(AlertKind.OLDEST_TOO_OLD, SINCE, LAST, 2)
    alert = SPEAKER.of_oldest(found, entries, more=False, at=START, revision=1)
    assert as_text(alert) == (
        "Open entries are getting old. 2 entries failed long ago and are still open"
        " (order: 2). The oldest failed first at 2026-01-01 11:00 UTC: TimeoutError in orders.sync."
        f" Decide what becomes of the oldest: angzarr dlq show {entries[0].id[:12]}"
    )
    more = SPEAKER.of_oldest(found, entries, more=True, at=START, revision=1)
    assert more.text.startswith("2 or more entries failed long ago")
    assert "(the 2 oldest by domain: order: 2)" in more.text


def test_a_halted_job_says_how_far_it_came_and_why():
    found = AlertFinding(AlertKind.REPLAY_HALTED, SINCE, LAST, 5)
    alert = SPEAKER.of_job(found, "job-1", job_of(), at=START, revision=1)
    assert as_text(alert) == (
        "Replay job job-1 stopped itself. Of 6 entries sent out of 100, 5 failed again and 1 were"
        " handled; the rest waits. Began 2026-01-01 11:00 UTC by ada@host. It says: 5 of the last 5"
        " failed again. See why: angzarr dlq jobs show job-1. Once the cause is gone: angzarr dlq"
        " jobs resume job-1"
    )


def test_a_job_that_waits_for_approval_says_whose_it_is_and_how_large():
    found = AlertFinding(AlertKind.APPROVAL_WANTED, SINCE, LAST, 100)
    job = job_of(said="more than 50 entries: a second person must approve", sent=0)
    alert = SPEAKER.of_job(found, "job-1", job, at=START, revision=1)
    assert as_text(alert) == (
        "Replay job job-1 waits for approval. 100 entries to be replayed, proposed 2026-01-01 11:00"
        " UTC by ada@host; none is sent. It says: more than 50 entries: a second person must"
        " approve. Look at it: angzarr dlq jobs show job-1. Then, as another person: angzarr dlq"
        " jobs approve job-1, or: angzarr dlq jobs cancel job-1"
    )


def test_a_storm_names_its_size_and_its_largest_group():
    groups = [group_of("a", entries=9), group_of("b", entries=2, domain="billing")]
    found = AlertFinding(AlertKind.STORM, SINCE, LAST, 11)
    alert = SPEAKER.of_storm(found, groups, at=START, revision=3)
    assert alert.title == "2 groups of failures at once"
    assert alert.text == (
        "2 more groups of failures are new or back, with 11 entries in all (groups by domain:"
        " order: 1, billing: 1). The largest: TimeoutError in orders.sync, 9 entries, last at"
        " 2026-01-01 11:59 UTC."
    )
    assert (alert.key, alert.count) == ("storm:storm", 11)
    assert "angzarr dlq stats" in alert.todo


def test_a_storm_says_how_many_of_its_groups_are_poison_and_that_it_is_over():
    groups = [group_of("a", reason="poison"), group_of("b"), group_of("c", reason="poison")]
    found = AlertFinding(AlertKind.STORM, SINCE, LAST, 9)
    began = SPEAKER.of_storm(found, groups, at=START, revision=3)
    assert "3 more groups of failures are new or back, 2 of them poison," in began.text
    over = SPEAKER.of_storm(replace(found, resolved=True), (), at=START, revision=4)
    assert (over.key, over.title) == (began.key, "Resolved: Storm of failures")


# -- what comes from letters is hostile --------------------------------------------------------


@given(st.text(), st.text(), st.text(), st.sampled_from(sorted(WORDS)))
def test_whatever_a_letter_says_the_alert_is_one_short_line(kind_of_error, message, handler, kind):
    group = group_of(error_type=kind_of_error, error_message=message * 50, handler_name=handler)
    said = as_text(of_group(kind, group=group))
    assert said.isprintable()
    assert len(said) < 1200


@pytest.mark.parametrize(
    "kind", [AlertKind.NEW_GROUP, AlertKind.GROUP_GROWING, AlertKind.DEAD_LETTER]
)
def test_of_what_cannot_be_read_no_replay_is_advised(kind):
    group = group_of(reason=UNREADABLE, error_type="", fingerprint="f1")
    assert of_group(kind, group=group).todo == (
        "It holds nothing that a replay could send. Look at its bytes: angzarr dlq list --group f1,"
        " then angzarr dlq show ENTRY --json. Find who puts it there; what is an event of yours:"
        " publish it anew."
    )


@pytest.mark.parametrize(
    "kind", [AlertKind.NEW_GROUP, AlertKind.GROUP_GROWING, AlertKind.DEAD_LETTER]
)
def test_of_what_another_system_gave_up_it_is_said_what_a_replay_needs(kind):
    group = group_of(reason=UNREADABLE, error_type="org.DataException", fingerprint="f1")
    assert of_group(kind, group=group).todo == (
        "Another system gave it up. Look: angzarr dlq list --group f1, then angzarr dlq show ENTRY."
        " A replay needs a task for it under dlq.foreign_routes."
    )


@given(st.text(min_size=1))
def test_whatever_a_fingerprint_is_the_command_is_one_argument_more(fingerprint):
    todo = of_group(AlertKind.POISON, group=group_of(fingerprint)).todo
    command = shlex.split(todo[todo.index("angzarr dlq list") :])
    assert command[:4] == ["angzarr", "dlq", "list", "--group"]
    assert len(command) == 5


def test_terminals_and_chats_act_on_nothing():
    group = group_of(error_message="\x1b[2J<!channel> & <https://evil.test|here>\nnew line")
    alert = of_group(AlertKind.NEW_GROUP, group=group)
    assert "\x1b" not in alert.text
    assert "\n" not in alert.text
    shown = slack_json(alert)
    assert "<" not in shown["text"]
    assert "&lt;!channel&gt; &amp; &lt;https://evil.test|here&gt;" in shown["text"]
    assert {block["text"]["type"] for block in shown["blocks"]} == {"plain_text"}


# -- links -------------------------------------------------------------------------------------


def test_a_link_is_filled_in_and_quoted():
    alert = alert_of(fingerprint="a/b?c", domain="order", handler_name="x y")
    link = link_of(alert, "https://dash.test/{group}?d={domain}&h={handler}&k={kind}&a={alert}")
    assert link == (f"https://dash.test/~YS9iP2M?d=order&h=x%20y&k=new_group&a={alert.id}")
    assert link_of(alert, "") == ""
    assert (
        Speaker("https://d.test/{group}")
        .of_group(
            AlertFinding(AlertKind.POISON, SINCE, LAST, 1), group_of("f1"), at=START, revision=1
        )
        .link
        == "https://d.test/f1"
    )


@pytest.mark.parametrize(
    "template",
    [
        "https://d.test/{grup}", "https://d.test/{}", "https://d.test/{group", "d.test/{group}",
        "https://d.test/{group.__class__}", "https://d.test/{group!r}", "https://d.test/{kind:>9}",
        "javascript:{group}",
    ],
)  # fmt: skip
def test_a_link_that_cannot_be_filled_in_is_refused(template):
    with pytest.raises(ValueError, match="the link of alerts"):
        check_link(template)


# -- bodies ------------------------------------------------------------------------------------


def test_the_generic_body_has_the_documented_form():
    assert json.loads(body_of(alert_of(), BodyFormat.GENERIC)) == {
        "type": "dlq.alert",
        "timestamp": "2026-01-01T12:00:00Z",
        "data": {
            "id": alert_of().id,
            "key": "new_group:group:f1",
            "kind": "new_group",
            "severity": "error",
            "resolved": False,
            "title": "New group of failures: TimeoutError in orders.sync",
            "text": "3 entries failed in a way that was not seen before.",
            "todo": "Look: angzarr dlq list --group f1",
            "link": "https://dash.test/f1",
            "since": "2026-01-01T11:00:00Z",
            "last_at": "2026-01-01T11:59:00Z",
            "count": 3,
            "group": "f1",
            "domain": "order",
            "handler": "orders.sync",
            "error_type": "TimeoutError",
        },
    }
    over = generic_json(alert_of(resolved=True, link=""))
    assert (over["type"], over["data"]["link"]) == ("dlq.alert.resolved", None)


def test_the_same_alert_makes_the_same_bytes():
    for form in BodyFormat:
        assert body_of(alert_of(), form) == body_of(replace(alert_of()), form)


def test_slack_is_told_what_it_takes():
    long = alert_of(title="t" * 500, text="x" * 9000, severity=AlertSeverity.WARNING)
    shown = json.loads(body_of(long, BodyFormat.SLACK))
    header, section, link = shown["blocks"]
    assert len(header["text"]["text"]) <= 150
    assert len(section["text"]["text"]) <= 3000
    assert len(shown["text"]) <= 3000
    assert link["text"] == {"type": "mrkdwn", "text": "<https://dash.test/f1|Open>"}


def test_a_trial_alert_says_that_nothing_is_to_be_done():
    alert = trial_alert(START, "token")
    assert alert.kind is AlertKind.TEST
    assert alert.id != trial_alert(START, "another").id
    assert "Nothing is to be done." in as_text(alert)


def test_a_group_that_somebody_called_fixed_says_so_when_it_fails_again():
    told = of_group(AlertKind.GROUP_REGRESSED, group=group_of(status=GroupStatus.REGRESSED))
    assert "after somebody called it fixed" in as_text(told)
