"""A spool takes letters whole or not at all, and never more than its bound."""

from __future__ import annotations

import errno
import os
import stat
import time
from datetime import timedelta
from pathlib import Path

import pytest

from angzarr.adapters.files import spool_file, whole_files
from angzarr.adapters.files.spool import UNLOOKED_SHARE, FolderOfLetters, Spool
from angzarr.dead_letters.queue import RawLetter, TooLarge
from angzarr.dead_letters.spool_forwarder import Aside
from angzarr.errors import DeadLetterQueueUnavailable, DecodeError
from contracts.dead_letters import a_letter, letters_of
from hand_clock import HandClock

MANY = 2**30


@pytest.fixture
def path(tmp_path):
    return tmp_path / "var" / "spool"


@pytest.fixture
def open_spool(path):
    def make(max_bytes=MANY, **options):
        spool = Spool(path, max_bytes=max_bytes, **options)
        spool.prepare()
        return spool

    return make


@pytest.fixture
def spool(open_spool):
    return open_spool()


@pytest.fixture
def folder(path):
    return FolderOfLetters(path)


def names(path):
    return sorted(entry.name for entry in path.iterdir())


def size_of_one():
    return len(spool_file.write(a_letter("order")))


# -- taking letters ----------------------------------------------------------------------------


def test_letters_are_there_whole_and_in_order(spool, folder):
    letters = letters_of("order", 12)
    assert spool.put(letters[:5]) == [None] * 5
    assert spool.put(letters[5:]) == [None] * 7
    assert [folder.read(one) for one in folder.waiting()] == letters


def test_bytes_that_are_no_letter_are_there_in_their_place(spool, folder):
    raw = RawLetter(domain="order", raw=b"no letter \xff", content_type="text/odd")
    spool.put([a_letter("order")])
    assert spool.put_raw([raw]) == [None]
    first, second = folder.waiting()
    assert second.letter_id == raw.id
    assert [folder.read(one) for one in (first, second)] == [a_letter("order"), raw]


def test_a_name_says_the_size_and_the_letters_id(spool, folder, path):
    spool.put([a_letter("order")])
    (one,) = folder.waiting()
    assert one.size == (path / one.name).stat().st_size
    assert one.letter_id == "order-0"


def test_a_clock_that_is_set_back_does_not_change_the_order(open_spool, folder):
    clock = HandClock()
    spool = open_spool(clock=clock)
    for number in range(5):
        spool.put([a_letter("order", number)])
        clock.time -= timedelta(hours=1)
    assert [one.letter_id for one in folder.waiting()] == [f"order-{n}" for n in range(5)]


def test_the_folder_and_its_files_are_their_owners_alone(spool, folder, path):
    spool.put([a_letter("order")])
    (one,) = folder.waiting()
    folder.set_aside(one, Aside.REFUSED)
    modes = [stat.S_IMODE(p.stat().st_mode) for p in (path, path / "refused")]
    assert modes == [0o700, 0o700]
    assert stat.S_IMODE((path / "refused" / one.name).stat().st_mode) == 0o600


def test_every_file_and_then_the_folder_is_synced_before_a_letter_counts(spool, path, monkeypatch):
    steps = []
    opened = Path("/proc/self/fd")
    monkeypatch.setattr(os, "fsync", lambda fd: steps.append(str((opened / str(fd)).readlink())))
    rename = os.rename
    monkeypatch.setattr(os, "rename", lambda *a, **k: (steps.append("rename"), rename(*a, **k))[1])
    spool.put(letters_of("order", 2))
    assert [".unfinished-" in step for step in steps] == [True, False, True, False, False]
    assert steps[1::2] == ["rename", "rename"]
    assert steps[-1] == str(path)


def test_putting_a_letter_twice_is_harmless(spool, folder):
    letter = a_letter("order")
    assert spool.put([letter, letter]) == [None, None]
    assert {folder.read(one).id for one in folder.waiting()} == {letter.id}


def test_an_id_that_no_file_name_can_hold_is_no_obstacle(spool, folder):
    letter = a_letter("order", id="../../etc/passwd\x00\n" + "x" * 300)
    assert spool.put([letter]) == [None]
    (one,) = folder.waiting()
    assert folder.read(one) == letter


def test_nothing_is_put_and_nothing_happens(spool, path):
    before = names(path)
    assert spool.put([]) == []
    spool.close()
    assert names(path) == before


# -- the bound ---------------------------------------------------------------------------------


def test_a_full_spool_refuses_with_a_reason_and_deletes_nothing(open_spool, folder, path):
    spool = open_spool(max_bytes=3 * size_of_one())
    answers = spool.put(letters_of("order", 5))
    assert answers[:3] == [None] * 3
    assert all(f"the spool at {path} is full" in answer for answer in answers[3:])
    assert len(folder.waiting()) == 3


def test_there_is_room_again_once_letters_were_forwarded(open_spool, folder):
    spool = open_spool(max_bytes=3 * size_of_one())
    spool.put(letters_of("order", 5))
    folder.done(folder.waiting()[:1])
    assert spool.put([a_letter("order", 7)]) == [None]
    assert spool.put([a_letter("order", 8)]) != [None]


def test_what_was_set_aside_counts(open_spool, folder):
    spool = open_spool(max_bytes=3 * size_of_one())
    spool.put(letters_of("order", 2))
    first, second = folder.waiting()
    folder.set_aside(first, Aside.REFUSED)
    folder.set_aside(second, Aside.DAMAGED)
    answers = open_spool(max_bytes=3 * size_of_one()).put(letters_of("order", 2))
    assert [answer is None for answer in answers] == [True, False]


def test_a_letter_larger_than_the_bound_is_refused_for_good(open_spool):
    (answer,) = open_spool(max_bytes=size_of_one() - 1).put([a_letter("order")])
    assert isinstance(answer, TooLarge)


def test_several_writers_keep_the_bound_but_for_a_hundredth_each(open_spool, folder):
    one = size_of_one()
    bound = 300 * one
    spools = [open_spool(max_bytes=bound) for _ in range(4)]
    refused = 0
    for number in range(400):
        refused += spools[number % 4].put([a_letter("order", number)]) != [None]
    used = folder.tally().size
    assert refused > 0
    assert bound - one <= used <= bound * (1 + 4 * UNLOOKED_SHARE) + one


# -- what goes wrong ---------------------------------------------------------------------------


def failing_write(monkeypatch, number, after=0):
    """Let the disk fail with errno *number* once *after* files were begun."""
    write, begun = os.write, []

    def fail(file, data):
        begun.append(file)
        if len(begun) <= after:
            return write(file, data)
        write(file, bytes(data)[:10])
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "write", fail)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_refuses_with_a_reason_and_leaves_no_half_file(
    spool, path, folder, monkeypatch, number
):
    failing_write(monkeypatch, number, after=2)
    answers = spool.put(letters_of("order", 4))
    assert answers[:2] == [None, None]
    assert all(f"the disk of the spool at {path} is full" in answer for answer in answers[2:])
    assert [one.letter_id for one in folder.waiting()] == ["order-0", "order-1"]
    assert all(folder.read(one) for one in folder.waiting())
    assert not [name for name in names(path) if "unfinished" in name]


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS, errno.EACCES])
def test_a_disk_that_fails_makes_the_spool_unavailable_in_one_sentence(
    spool, path, folder, monkeypatch, number
):
    failing_write(monkeypatch, number)
    with pytest.raises(DeadLetterQueueUnavailable) as caught:
        spool.put([a_letter("order")])
    assert str(caught.value) == (
        f"the spool at {path} cannot be used: {os.strerror(number).lower()}"
    )
    assert folder.waiting() == []
    assert not [name for name in names(path) if "unfinished" in name]


def test_a_folder_that_cannot_be_synced_confirms_nothing(spool, monkeypatch):
    sync = os.fsync

    def fail(file):
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        sync(file)

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(DeadLetterQueueUnavailable):
        spool.put([a_letter("order")])


def test_a_folder_that_is_gone_is_not_made_anew_elsewhere(spool, path):
    """What was mounted there outlives the container; what would be made there does not."""
    path.rename(path.with_name("unmounted"))
    with pytest.raises(DeadLetterQueueUnavailable, match="no such file or directory"):
        spool.put([a_letter("order")])
    assert not path.exists()


def test_a_file_where_the_folder_should_be_is_one_sentence(tmp_path):
    (tmp_path / "spool").write_text("")
    with pytest.raises(DeadLetterQueueUnavailable, match="cannot be used: file exists"):
        Spool(tmp_path / "spool", max_bytes=MANY).prepare()


def test_a_trial_at_start_leaves_nothing_behind(spool, path):
    assert names(path) == [".lock"]


def test_what_dead_writers_left_is_removed_after_an_hour(open_spool, path):
    spool = open_spool()
    old, young = path / whole_files.unfinished(), path / whole_files.unfinished()
    for one in (old, young):
        one.write_text("{")
    long_ago = time.time() - whole_files.ABANDONED_AFTER - 60
    os.utime(old, (long_ago, long_ago))
    spool.put([a_letter("order")])
    assert not old.exists()
    assert young.exists()


# -- taking letters out ------------------------------------------------------------------------


def test_where_there_is_no_folder_nothing_waits(tmp_path):
    nowhere = FolderOfLetters(tmp_path / "nowhere")
    assert nowhere.waiting() == []
    assert nowhere.tally() == (0, 0, None, 0, 0)
    assert not (tmp_path / "nowhere").exists()


def test_a_letter_that_is_gone_is_nothing_and_deleting_it_again_is_harmless(spool, folder):
    spool.put([a_letter("order")])
    (one,) = folder.waiting()
    folder.done([one])
    folder.done([one])
    folder.set_aside(one, Aside.REFUSED)
    assert folder.read(one) is None
    assert folder.set_apart(Aside.REFUSED) == []


@pytest.mark.parametrize("damage", ["empty", "cut", "garbage", "link", "folder", "pipe"])
def test_a_damaged_file_is_told_and_can_be_set_aside(spool, folder, path, damage):
    spool.put([a_letter("order")])
    (one,) = folder.waiting()
    file = path / one.name
    raw = file.read_bytes()
    file.unlink()
    match damage:
        case "link":
            file.symlink_to("/etc/passwd")
        case "folder":
            file.mkdir()
        case "pipe":
            os.mkfifo(file)
        case _:
            file.write_bytes({"empty": b"", "cut": raw[:-9], "garbage": b"\xff" * 99}[damage])
    with pytest.raises(DecodeError):
        folder.read(one)
    folder.set_aside(one, Aside.DAMAGED)
    assert folder.waiting() == []
    assert folder.set_apart(Aside.DAMAGED) == [one]


def test_files_of_others_are_left_alone(spool, folder, path):
    (path / "lost+found").mkdir()
    (path / "README").write_text("mine")
    (path / os.fsdecode(b"\xff.letter")).write_text("")
    spool.put([a_letter("order")])
    assert len(folder.waiting()) == 1
    assert folder.tally().letters == 1
    assert "README" in names(path)


def test_a_tally_counts_what_waits_and_what_was_set_aside(open_spool, folder):
    clock = HandClock()
    spool = open_spool(clock=clock)
    for number in range(4):
        spool.put([a_letter("order", number)])
        clock.sleep(timedelta(seconds=1))
    first, second, *_ = folder.waiting()
    folder.set_aside(first, Aside.REFUSED)
    folder.set_aside(second, Aside.DAMAGED)
    tally = folder.tally()
    assert (tally.letters, tally.refused, tally.damaged) == (2, 1, 1)
    assert tally.size == 4 * size_of_one()
    assert tally.oldest_at == clock.now() - timedelta(seconds=2)


def test_what_was_refused_can_be_brought_back_in_its_place(spool, folder):
    spool.put(letters_of("order", 3))
    before = folder.waiting()
    folder.set_aside(before[1], Aside.REFUSED)
    assert folder.bring_back(Aside.REFUSED) == 1
    assert folder.waiting() == before


def test_one_at_a_time_forwards(spool, folder, path):
    other = FolderOfLetters(path)
    with folder.alone() as ours, other.alone() as theirs:
        assert (ours, theirs) == (True, False)
    with other.alone() as theirs:
        assert theirs


def test_a_folder_that_cannot_be_locked_is_one_sentence(folder):
    with pytest.raises(DeadLetterQueueUnavailable, match="no such file"), folder.alone():
        pytest.fail("it is not there")
