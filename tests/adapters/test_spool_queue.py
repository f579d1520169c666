"""A spool as a dead-letter queue is one like any other, and keeps those who forward waiting."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path

import pytest

from angzarr.adapters.files import spool_queue
from angzarr.adapters.files.spool import FolderOfLetters, Spool
from angzarr.adapters.files.spool_queue import SpoolQueue
from angzarr.dead_letters.queue import RawLetter, TellsDamaged, TooLarge
from angzarr.dead_letters.spool_forwarder import Forwarder
from angzarr.errors import DeadLetterQueueUnavailable
from contracts.dead_letters import (
    NOTHING,
    CountedLettersContract,
    RawLettersContract,
    a_letter,
    letters_of,
    take,
)
from unit.dead_letters.letterboxes import Target

MANY = 2**30


class TestSpoolQueue(RawLettersContract, CountedLettersContract):
    @pytest.fixture(autouse=True)
    def backend(self, tmp_path: Path) -> None:
        self.path = tmp_path / "spool"
        Spool(self.path, max_bytes=MANY).prepare()

    def open(self) -> SpoolQueue:
        return SpoolQueue(self.path, max_bytes=MANY)

    def put_raw(self, domain: str, raw: bytes, content_type: str | None) -> None:
        letter = RawLetter(domain=domain, raw=raw, content_type=content_type or "")
        assert Spool(self.path, max_bytes=MANY).put_raw([letter]) == [None]

    def test_letters_come_in_the_order_in_which_they_were_put(
        self, queue: SpoolQueue, domain: str
    ) -> None:
        letters = letters_of(domain, 30)
        queue.put(letters)
        assert [one.letter for one in take(queue, [domain], 30)] == letters

    def test_nobody_forwards_while_letters_are_taken(self, queue: SpoolQueue, domain: str) -> None:
        queue.put(letters_of(domain, 2))
        target = Target("kafka")
        forwarder = Forwarder(spool=FolderOfLetters(self.path), queue=target, chance=lambda: 0.5)
        queue.done(take(queue, [domain], 1))
        assert forwarder.batch().busy
        queue.close()
        assert forwarder.batch().forwarded == 1
        assert target.taken == [f"{domain}-1"]

    def test_one_who_forwards_is_waited_for(self, queue: SpoolQueue, domain: str) -> None:
        queue.put(letters_of(domain, 2))
        forwarding, go_on = threading.Event(), threading.Event()

        def forward() -> None:
            with FolderOfLetters(self.path).alone():
                forwarding.set()
                go_on.wait(60)

        thread = threading.Thread(target=forward)
        thread.start()
        assert forwarding.wait(60)
        threading.Timer(0.2, go_on.set).start()
        assert len(take(queue, [domain], 2)) == 2
        thread.join()

    def test_one_who_does_not_end_forwarding_is_told_in_one_sentence(
        self, queue: SpoolQueue, domain: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(spool_queue, "PATIENCE", 0.0)
        with (
            FolderOfLetters(self.path).alone(),
            pytest.raises(DeadLetterQueueUnavailable, match="another process takes letters out"),
        ):
            queue.receive([domain], limit=1, wait=NOTHING)

    def test_a_damaged_file_stays_and_is_told_once_and_keeps_no_other(
        self, queue: SpoolQueue, domain: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        queue.put(letters_of(domain, 3))
        damaged = sorted(self.path.glob("*.letter"))[1]
        damaged.write_bytes(damaged.read_bytes()[:-9])
        assert queue.waiting([domain]) == {domain: 2}
        taken = take(queue, [domain], 2)
        assert queue.receive([domain], limit=1, wait=timedelta(0)) == []
        queue.done(taken)
        assert list(self.path.glob("*.letter")) == [damaged]
        assert isinstance(queue, TellsDamaged)
        assert queue.damaged() == {
            damaged.name: "the file does not hold what was written to it: it was cut or changed"
        }
        assert len(caplog.records) == 1
        assert f"{damaged.name} stays where it is" in caplog.text

    def test_a_spool_that_is_full_refuses_with_a_reason(self, domain: str) -> None:
        queue = SpoolQueue(self.path, max_bytes=4_000)
        first, second, large = a_letter(domain), a_letter(domain, 1), a_letter(domain, 2)
        assert queue.put([first]) == [None]
        answers = queue.put([second] * 4)
        assert "is full" in str(answers[-1])
        big = RawLetter(domain=domain, raw=b"x" * 9_000, content_type="")
        assert isinstance(queue.put_raw([big])[0], TooLarge)
        assert queue.put([large]) != [None]

    def test_letters_of_other_domains_stay(self, queue: SpoolQueue, domain: str) -> None:
        queue.put([a_letter("other"), a_letter(domain), a_letter("another")])
        taken = take(queue, [domain], 1)
        assert queue.receive([domain], limit=9, wait=timedelta(0)) == []
        queue.done(taken)
        assert queue.waiting(["other", "another", domain]) == {"other": 1, "another": 1, domain: 0}


def test_a_folder_that_is_missing_is_not_read_and_is_made_to_be_put_into(tmp_path: Path) -> None:
    path = tmp_path / "var" / "spool"
    queue = SpoolQueue(path, max_bytes=MANY)
    with pytest.raises(DeadLetterQueueUnavailable, match="no such file or directory"):
        queue.receive(["order"], limit=1, wait=NOTHING)
    checking = SpoolQueue(path, max_bytes=MANY, create_missing=False)
    with pytest.raises(DeadLetterQueueUnavailable, match="no such file or directory"):
        checking.put([a_letter("order")])
    assert not path.parent.exists()
    assert queue.put([a_letter("order")]) == [None]
    assert checking.put([a_letter("order", 1)]) == [None]
    assert queue.waiting(["order"]) == {"order": 2}
