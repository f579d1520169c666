"""GroupCommit: whoever finds nothing waiting may rely on it that all is written."""

from __future__ import annotations

import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.runtime.group_commit import GROUP_COMMIT, MOST, GroupCommit


@pytest.fixture
def commit():
    return GroupCommit()


def test_while_it_is_closed_all_is_written_at_once(commit):
    written = []
    commit.add(written.append, [1, 2])
    assert written == [[1, 2]]


def test_while_it_is_open_all_waits_for_a_write(commit):
    written = []
    commit.open()
    commit.add(written.append, [1])
    commit.add(written.append, [2, 3])
    assert written == []
    commit.write()
    assert written == [[1, 2, 3]]
    commit.write()
    assert written == [[1, 2, 3]]


@given(st.lists(st.tuples(st.booleans(), st.lists(st.integers(), max_size=3))))
def test_nothing_is_lost_doubled_or_out_of_order(calls):
    commit, written = GroupCommit(), []

    def other(items):
        written.extend(items)

    commit.open()
    for first, items in calls:
        commit.add(written.extend if first else other, items)
    commit.close()
    assert written == [item for _, items in calls for item in items]


def test_no_more_waits_than_a_bound(commit):
    written = []
    commit.open()
    for number in range(MOST):
        commit.add(written.extend, [number])
    assert written == list(range(MOST))


def test_it_is_closed_once_all_who_opened_it_have(commit):
    written = []
    commit.open()
    commit.open()
    commit.close()
    commit.add(written.extend, [1])
    assert written == []
    commit.close()
    commit.add(written.extend, [2])
    assert written == [1, 2]


def test_what_cannot_be_written_keeps_nothing_from_the_others(commit, caplog):
    def fails(_items):
        raise OSError(28, "no space")

    written = []
    commit.open()
    commit.add(fails, [1])
    commit.add(written.extend, [2])
    commit.write()
    assert written == [2]
    assert "group_not_written" in caplog.text


def test_what_ends_a_thread_amid_a_write_loses_nothing(commit):
    written, ends = [], iter([SystemExit()])

    def to(items):
        for end in ends:
            raise end
        written.extend(items)

    commit.open()
    commit.add(to, [1, 2])
    with pytest.raises(SystemExit):
        commit.write()
    commit.add(to, [3])
    commit.write()
    assert written == [1, 2, 3]


def test_a_write_waits_for_what_another_thread_writes(commit):
    """The one that finds nothing waiting must not acknowledge before the other has written."""
    begun, go_on, order = threading.Event(), threading.Event(), []

    def slow(_items):
        begun.set()
        assert go_on.wait(60)
        order.append("written")

    commit.open()
    commit.add(slow, [1])
    writer = threading.Thread(target=commit.write)
    writer.start()
    assert begun.wait(60)
    second = threading.Thread(target=lambda: (commit.write(), order.append("acknowledged")))
    second.start()
    go_on.set()
    writer.join(60)
    second.join(60)
    assert order == ["written", "acknowledged"]


def test_a_forked_child_writes_nothing_of_its_parents():
    written = []
    GROUP_COMMIT.open()
    try:
        GROUP_COMMIT.add(written.extend, [1])
        child = os.fork()
        if child == 0:
            GROUP_COMMIT.write()
            GROUP_COMMIT.add(written.extend, [2])  # at once: it is closed here
            os._exit(0 if written == [2] else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert written == []
    finally:
        GROUP_COMMIT.close()
    assert written == [1]
