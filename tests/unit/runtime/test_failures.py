"""Machine faults however they are wrapped, and failures counted by key."""

from __future__ import annotations

import errno
import subprocess
import sys
import threading

import pytest
from google.protobuf.message import DecodeError as ProtobufDecodeError
from kombu.exceptions import DecodeError

from angzarr.runtime.failures import A_MINUTE, FailureCounts, LogThrottle, is_machine_fault

FAULTS = [
    MemoryError(),
    RuntimeError("can't start new thread"),
    RuntimeError("cannot schedule new futures after shutdown"),
    ProtobufDecodeError("Error parsing message with type 'a.B': Arena alloc failed"),
    *(
        OSError(number, "no")
        for number in (
            errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ENOSPC, errno.EDQUOT,
        )
    ),
]  # fmt: skip
OTHERS = [
    RuntimeError("a bug"), RecursionError("maximum recursion depth exceeded"), ValueError("no"),
    RuntimeError(), RuntimeError(b"raw"), ConnectionResetError(errno.ECONNRESET, "reset"),
    ProtobufDecodeError("Error parsing message"), ValueError("no 'x: Arena alloc failed"),
    FileNotFoundError(errno.ENOENT, "no"), KeyError("can't start new thread"), OSError(),
]  # fmt: skip


def raised_from(error):
    try:
        raise ValueError("it cannot be read") from error
    except ValueError as outer:
        return outer


def raised_while(error):
    try:
        try:
            raise error
        except type(error):
            raise ValueError("it cannot be read")  # noqa: B904 - that is what is tested
    except ValueError as outer:
        return outer


WRAPPED = [lambda error: error, raised_from, raised_while, DecodeError]


@pytest.mark.parametrize("wrap", WRAPPED)
@pytest.mark.parametrize("error", FAULTS, ids=repr)
def test_a_fault_of_the_machine_is_known_however_it_is_wrapped(error, wrap):
    assert is_machine_fault(wrap(error))


@pytest.mark.parametrize("wrap", WRAPPED)
@pytest.mark.parametrize("error", OTHERS, ids=repr)
def test_any_other_error_is_none(error, wrap):
    assert not is_machine_fault(wrap(error))


def test_errors_that_wrap_each_other_in_a_circle_are_looked_at_once():
    one, other = ValueError(), KeyError()
    one.__cause__, other.__cause__ = other, one
    assert not is_machine_fault(one)


def test_python_says_so_of_a_thread_that_cannot_start(monkeypatch):
    """The words are CPython's: one limit that any process can reach is the size of a stack."""
    before = threading.stack_size(2**46)
    try:
        with pytest.raises(RuntimeError) as raised:
            threading.Thread(target=print).start()
    finally:
        threading.stack_size(before)
    assert is_machine_fault(raised.value)


def test_protobuf_says_so_of_a_letter_that_there_is_no_memory_for():
    """The words are protobuf's, which raises them for malformed bytes otherwise."""
    code = """
import resource
from google.protobuf.message import DecodeError
from angzarr.runtime.failures import is_machine_fault
from angzarr.wire.dead_letter_pb2 import AngzarrDeadLetter
letter = AngzarrDeadLetter()
letter.rejected_events.pages.add().event.value = b"x" * 2**25
raw = letter.SerializeToString()
del letter
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**20,) * 2)
target = AngzarrDeadLetter()
try:
    target.ParseFromString(raw)
except DecodeError as error:
    print(is_machine_fault(error))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


class Clock:
    """Seconds, moved by hand."""

    now = 0.0

    def __call__(self):
        return self.now


def test_each_cause_is_spoken_of_once_a_minute():
    clock = Clock()
    seldom = LogThrottle(monotonic=clock)
    assert [seldom.now("a"), seldom.now("b"), seldom.now("a")] == [True, True, False]
    clock.now = A_MINUTE - 1
    assert not seldom.now("a")
    clock.now = A_MINUTE
    assert [seldom.now("a"), seldom.now("a")] == [True, False]


def test_causes_of_long_ago_are_forgotten():
    clock = Clock()
    seldom = LogThrottle(monotonic=clock)
    for number in range(1000):
        clock.now += 1
        assert seldom.now(f"tenant-{number}")
    assert len(seldom._next) <= 2 * A_MINUTE
    assert not seldom.now("tenant-999")


def test_each_key_counts_by_itself_until_it_is_forgotten():
    counts = FailureCounts()
    assert [counts.add("a"), counts.add("b"), counts.add("a")] == [1, 1, 2]
    counts.forget("a")
    counts.forget("nothing")
    assert [counts.add("a"), counts.add("b")] == [1, 2]


def test_the_one_that_failed_longest_ago_makes_room():
    counts = FailureCounts(3)
    for key in ("a", "b", "c", "a", "d"):  # b failed longest ago
        counts.add(key)
    assert len(counts) == 3
    assert [counts.add("a"), counts.add("c"), counts.add("d"), counts.add("b")] == [3, 2, 2, 1]


def test_many_threads_lose_no_count_and_break_nothing():
    counts, shared, errors, rounds, threads = FailureCounts(8), FailureCounts(), [], 3000, 4
    interval = sys.getswitchinterval()

    def fail(own):
        try:
            for number in range(rounds):
                shared.add("it")
                counts.add((own, number))
        except BaseException as error:
            errors.append(error)

    sys.setswitchinterval(1e-6)
    try:
        running = [threading.Thread(target=fail, args=(own,)) for own in range(threads)]
        for one in running:
            one.start()
        for one in running:
            one.join(120)
    finally:
        sys.setswitchinterval(interval)
    assert errors == []
    assert len(counts) == 8
    assert shared.add("it") == threads * rounds + 1
