"""What every dead-letter queue must do, whatever carries it."""

from __future__ import annotations

import json
import multiprocessing
import socket
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from angzarr.analysis.worker.intake import Intake
from angzarr.clock import SystemClock
from angzarr.dead_letters.bounds import LETTER
from angzarr.dead_letters.codec import JSON_CONTENT_TYPE, Form, encode
from angzarr.dead_letters.depth import QueueDepth, depths_of
from angzarr.dead_letters.letter import DeadLetter, Reason
from angzarr.dead_letters.names import queue_name
from angzarr.dead_letters.queue import (
    BATCH_BYTES,
    CarriesRaw,
    CountsWaiting,
    DeadLetterQueue,
    RawLetter,
    Receipt,
    TooLarge,
    put_raw,
)
from angzarr.dead_letters.record import ForeignRecord
from angzarr.dead_letters.transfer import carry_into, name_of
from angzarr.errors import DeadLetterQueueUnavailable
from angzarr.events.event import Event, Message
from angzarr.settings.dead_letters import DeadLetterSettings
from polling import PATIENCE, wait_until

NOTHING = timedelta(milliseconds=300)


def nested_letter(levels: int) -> bytes:
    """Return a letter of others that has so many levels in a field that we do not know."""
    deep = "[" * (levels - 1) + "]" * (levels - 1)
    said = '{"rejectionReason": "beyond the bounds", "metadata": {"letter_id": "a"}, "deep": '
    return f"{said}{deep}}}".encode()


def a_letter(domain: str, number: int = 0, **changes: Any) -> DeadLetter:
    data = {"number": number}
    message = Message(
        body=json.dumps([[data], {}, {}]).encode(),
        content_type="application/json",
        content_encoding="utf-8",
        headers={"task": "shop.sync", "id": f"t-{number}", "eta": None, "raw": b"\xff"},
        queue="orders",
    )
    event = Event(id=f"e-{number}", type="order.placed", data=data, root=f"r-{number}")
    facts: dict[str, Any] = {
        "id": f"{domain}-{number}",
        "domain": domain,
        "handler": "shop.sync",
        "reason": Reason.EXHAUSTED,
        "explanation": "5 attempts used",
        "message": message,
        "event": event,
        "sent_to_dlq_at": datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC),
    }
    return DeadLetter(**(facts | changes))


def letters_of(domain: str, count: int) -> list[DeadLetter]:
    return [a_letter(domain, number) for number in range(count)]


def take(queue: DeadLetterQueue, domains: list[str], count: int) -> list[Receipt]:
    """Receive until *count* letters came or patience ends."""
    taken: list[Receipt] = []
    deadline = time.monotonic() + PATIENCE
    while len(taken) < count and time.monotonic() < deadline:
        taken += queue.receive(domains, limit=count - len(taken), wait=timedelta(seconds=1))
    return taken


def come(queue: DeadLetterQueue, domain: str, wanted: Collection[str]) -> set[str]:
    """Receive until all *wanted* ids came or patience ends; return those that came.

    A letter may come twice: a client repeats what a slow server has not confirmed in time.
    """
    found: set[str] = set()
    deadline = time.monotonic() + PATIENCE
    while not found.issuperset(wanted) and time.monotonic() < deadline:
        found.update(ids(queue.receive([domain], limit=len(wanted), wait=timedelta(seconds=1))))
    return found


def ids(receipts: list[Receipt]) -> list[str]:
    return sorted(receipt.letter.id if receipt.letter else "" for receipt in receipts)


def counted(queue: CountsWaiting, domain: str) -> int | None:
    """Count, or None where a topic that was made just now is not ready to be counted."""
    try:
        return queue.waiting([domain])[domain]
    except DeadLetterQueueUnavailable:
        return None


class LetterRoundContract(ABC):
    """The way of a letter into its queue and out of it, which every variant of a backend has."""

    #: Bytes of a large letter, and how many of them may come by one answer.
    large = 900_000
    by_one_answer = 1

    @abstractmethod
    def open(self) -> DeadLetterQueue:
        """Open one more client of the backend of this test."""

    @abstractmethod
    def put_raw(self, domain: str, raw: bytes, content_type: str | None) -> None:
        """Put bytes into *domain*'s queue, which exists, as somebody else's client would."""

    @pytest.fixture
    def domain(self) -> str:
        return f"t{uuid.uuid4().hex[:10]}"

    @pytest.fixture
    def opened(self, backend: Any) -> Iterator[Callable[[], DeadLetterQueue]]:
        queues: list[DeadLetterQueue] = []

        def open_one() -> DeadLetterQueue:
            queues.append(self.open())
            return queues[-1]

        yield open_one
        for queue in queues:
            queue.close()

    @pytest.fixture
    def queue(self, opened: Callable[[], DeadLetterQueue]) -> DeadLetterQueue:
        return opened()

    def test_a_letter_is_confirmed_and_received_whole(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        letter = a_letter(domain)
        assert queue.put([letter]) == [None]
        [receipt] = take(queue, [domain], 1)
        assert receipt.letter == letter
        assert (receipt.domain, receipt.problem) == (domain, "")

    def test_many_letters_of_several_domains_arrive_once_each(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        domains = [domain, f"{domain}.eu", f"{domain}-us"]
        letters = [letter for one in domains for letter in letters_of(one, 13)]
        assert queue.put(letters) == [None] * 39
        taken = take(queue, domains, 39)
        assert ids(taken) == sorted(letter.id for letter in letters)
        assert queue.receive(domains, limit=9, wait=NOTHING) == []
        for receipt in taken:
            assert receipt.letter is not None
            assert receipt.letter.domain == receipt.domain

    def test_letters_not_done_come_back_when_their_receiver_closes(
        self, opened: Callable[[], DeadLetterQueue], domain: str
    ) -> None:
        first = opened()
        first.put(letters_of(domain, 3))
        assert len(take(first, [domain], 3)) == 3
        first.close()
        assert ids(take(opened(), [domain], 3)) == [f"{domain}-{n}" for n in range(3)]

    def test_letters_done_do_not_come_back(
        self, opened: Callable[[], DeadLetterQueue], domain: str
    ) -> None:
        first = opened()
        first.put(letters_of(domain, 3))
        first.done(take(first, [domain], 3))
        first.put([a_letter(domain, 3)])
        first.close()
        second = opened()
        assert ids(take(second, [domain], 1)) == [f"{domain}-3"]
        assert second.receive([domain], limit=5, wait=NOTHING) == []

    def test_the_rest_arrives_after_a_part_was_done(
        self, opened: Callable[[], DeadLetterQueue], domain: str
    ) -> None:
        first = opened()
        first.put(letters_of(domain, 9))
        done: list[str] = []
        while len(done) < 6:
            taken = take(first, [domain], 3)
            first.done(taken)
            done += ids(taken)
        first.close()
        rest = ids(take(opened(), [domain], 3))
        assert sorted(done + rest) == [f"{domain}-{n}" for n in range(9)]

    def test_done_after_close_is_ignored(
        self, opened: Callable[[], DeadLetterQueue], domain: str
    ) -> None:
        first = opened()
        first.put([a_letter(domain)])
        taken = take(first, [domain], 1)
        first.close()
        first.done(taken)
        assert len(take(opened(), [domain], 1)) == 1

    def test_putting_a_letter_twice_is_harmless(self, queue: DeadLetterQueue, domain: str) -> None:
        letter = a_letter(domain)
        assert queue.put([letter, letter]) == [None, None]
        assert queue.put([letter]) == [None]
        taken = take(queue, [domain], 1)
        taken += queue.receive([domain], limit=5, wait=timedelta(seconds=1))
        assert {receipt.letter.id for receipt in taken if receipt.letter} == {letter.id}

    def test_a_letter_that_was_done_can_be_put_again(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        """What is moved away and back, or drained into a file and imported, must not vanish."""
        for _ in range(2):
            assert queue.put([a_letter(domain)]) == [None]
            taken = take(queue, [domain], 1)
            assert ids(taken) == [f"{domain}-0"]
            queue.done(taken)

    def test_unreadable_bytes_come_with_the_reason_and_can_be_let_go(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        queue.put([a_letter(domain)])
        queue.done(take(queue, [domain], 1))
        self.put_raw(domain, b"not a letter", JSON_CONTENT_TYPE)
        [receipt] = take(queue, [domain], 1)
        assert receipt.letter is None
        assert receipt.raw == b"not a letter"
        assert receipt.problem == "the letter is not JSON"
        queue.done([receipt])
        assert queue.receive([domain], limit=1, wait=NOTHING) == []

    def test_large_letters_are_taken_by_their_bytes_and_all_of_them_come(
        self, opened: Callable[[], DeadLetterQueue], domain: str
    ) -> None:
        """However many are asked for: what is read is many times as large as its bytes."""
        data = [{"filling": "x" * self.large}, {}, {}]
        count = 3 * BATCH_BYTES // self.large
        message = replace(a_letter(domain).message, body=json.dumps(data).encode())
        letters = [a_letter(domain, number, message=message, event=None) for number in range(count)]
        first = opened()
        assert [first.put([one]) for one in letters] == [[None]] * count
        parts: list[list[Receipt]] = []
        deadline = time.monotonic() + PATIENCE
        while sum(map(len, parts)) < count and time.monotonic() < deadline:
            parts.append(first.receive([domain], limit=250, wait=timedelta(seconds=1)))
            first.done(parts[-1])
        assert ids([one for part in parts for one in part]) == sorted(one.id for one in letters)
        most = BATCH_BYTES + self.by_one_answer * (self.large + 2_000)
        assert max(sum(len(one.raw) for one in part) for part in parts) < most

    def test_a_foreign_domain_is_carried_under_a_mapped_name(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        foreign = f"{domain} Größe/*#" + "x" * 80
        assert queue.put([a_letter(foreign)]) == [None]
        [receipt] = take(queue, [foreign], 1)
        assert receipt.letter is not None
        assert receipt.letter.domain == foreign


class DeadLetterQueueContract(LetterRoundContract):
    """All that a queue must do, whatever carries it."""

    def test_only_the_domains_asked_for_are_taken(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        other = f"{domain}-other"
        queue.put([a_letter(domain), a_letter(other)])
        assert ids(take(queue, [other], 1)) == [f"{other}-0"]
        assert queue.receive([other], limit=5, wait=NOTHING) == []
        assert ids(take(queue, [domain], 1)) == [f"{domain}-0"]

    def test_no_more_than_the_limit_is_taken(self, queue: DeadLetterQueue, domain: str) -> None:
        queue.put(letters_of(domain, 5))
        taken = take(queue, [domain], 2)
        assert len(taken) == 2
        assert len(take(queue, [domain], 3)) == 3

    def test_an_empty_queue_gives_nothing_within_the_wait(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        queue.put([a_letter(domain)])
        queue.done(take(queue, [domain], 1))
        started = time.monotonic()
        assert queue.receive([domain], limit=1, wait=NOTHING) == []
        assert time.monotonic() - started < 60

    def test_who_looks_again_and_again_without_waiting_finds_what_is_there(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        queue.put(letters_of(domain, 3))
        taken: list[Receipt] = []
        deadline = time.monotonic() + PATIENCE
        while len(taken) < 3 and time.monotonic() < deadline:
            taken += queue.receive([domain], limit=3, wait=timedelta(0))
        assert ids(taken) == [f"{domain}-{n}" for n in range(3)]

    def test_a_domain_without_a_queue_yet_gives_nothing(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        assert queue.receive([domain], limit=1, wait=NOTHING) == []
        queue.put([a_letter(domain)])
        assert len(take(queue, [domain], 1)) == 1

    def test_nothing_is_put_and_nowhere_is_received_from(self, queue: DeadLetterQueue) -> None:
        assert queue.put([]) == []
        assert queue.receive([], limit=1, wait=timedelta(0)) == []
        queue.done([])

    def test_letters_done_out_of_order_lose_none_of_the_others(
        self, opened: Callable[[], DeadLetterQueue], domain: str
    ) -> None:
        first = opened()
        first.put(letters_of(domain, 5))
        taken = take(first, [domain], 5)
        by_id = {receipt.letter.id: receipt for receipt in taken if receipt.letter}
        first.done([by_id[f"{domain}-4"]])
        first.done([by_id[f"{domain}-2"], by_id[f"{domain}-0"]])
        first.close()
        second = opened()
        back = take(second, [domain], 2)
        back += second.receive([domain], limit=5, wait=timedelta(seconds=1))
        assert {f"{domain}-1", f"{domain}-3"} <= set(ids(back))

    def test_done_twice_is_harmless(self, queue: DeadLetterQueue, domain: str) -> None:
        queue.put(letters_of(domain, 2))
        taken = take(queue, [domain], 2)
        queue.done(taken)
        queue.done(taken)
        queue.put([a_letter(domain, 7)])
        assert ids(take(queue, [domain], 1)) == [f"{domain}-7"]

    def test_closing_twice_is_harmless(self, queue: DeadLetterQueue, domain: str) -> None:
        queue.put([a_letter(domain)])
        queue.close()
        queue.close()

    @pytest.mark.parametrize("form", list(Form))
    def test_a_letter_of_another_client_is_read_in_either_form(
        self, queue: DeadLetterQueue, domain: str, form: Form
    ) -> None:
        queue.put([a_letter(domain)])
        queue.done(take(queue, [domain], 1))
        encoded = encode(a_letter(domain, 1), form)
        self.put_raw(domain, *encoded)
        [receipt] = take(queue, [domain], 1)
        assert receipt.letter == a_letter(domain, 1)
        assert (receipt.raw, receipt.content_type) == tuple(encoded)

    def test_a_letter_without_a_content_type_is_read(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        queue.put([a_letter(domain)])
        queue.done(take(queue, [domain], 1))
        self.put_raw(domain, encode(a_letter(domain, 1)).body, None)
        [receipt] = take(queue, [domain], 1)
        assert receipt.letter == a_letter(domain, 1)

    def test_many_letters_may_be_in_hand_at_once(self, queue: DeadLetterQueue, domain: str) -> None:
        letters = letters_of(domain, 130)
        queue.put(letters)
        wanted = {letter.id for letter in letters}
        assert come(queue, domain, wanted) == wanted

    def test_many_threads_may_put_at_once(self, queue: DeadLetterQueue, domain: str) -> None:
        answers: list[list[str | None]] = []

        def put(thread: int) -> None:
            answers.append(queue.put([a_letter(domain, thread * 5 + n) for n in range(5)]))

        threads = [threading.Thread(target=put, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert answers == [[None] * 5] * 8
        wanted = {f"{domain}-{n}" for n in range(40)}
        assert come(queue, domain, wanted) == wanted


class CheckedDeadLetterQueueContract(ABC):
    """What a queue must do that may create nothing (`dlq.create_missing: false`)."""

    @abstractmethod
    def open_checking(self) -> DeadLetterQueue:
        """Open a client that creates nothing."""

    @abstractmethod
    def open_creating(self) -> DeadLetterQueue:
        """Open a client of the same backend that creates what is missing."""

    @abstractmethod
    def exists(self, domain: str) -> bool:
        """Tell whether *domain*'s queue or topic is there."""

    @pytest.fixture
    def domain(self) -> str:
        return f"t{uuid.uuid4().hex[:10]}"

    @pytest.fixture
    def queue(self, backend: Any) -> Iterator[DeadLetterQueue]:
        queue = self.open_checking()
        yield queue
        queue.close()

    @pytest.fixture
    def other(self, backend: Any) -> Iterator[DeadLetterQueue]:
        queue = self.open_creating()
        yield queue
        queue.close()

    def test_what_is_missing_refuses_its_letters_in_one_sentence_and_is_not_created(
        self, queue: DeadLetterQueue, other: DeadLetterQueue, domain: str
    ) -> None:
        there = f"{domain}-there"
        other.put([a_letter(there)])
        answers = queue.put([a_letter(domain), a_letter(there, 1), a_letter(domain, 2)])
        assert answers[1] is None
        for answer in (answers[0], answers[2]):
            assert f"{queue_name(domain)} does not exist" in str(answer)
            assert "dlq.create_missing is false" in str(answer)
            assert "\n" not in str(answer)
        assert not self.exists(domain)

    def test_what_is_missing_gives_nothing_and_keeps_no_other_letter_back(
        self, queue: DeadLetterQueue, other: DeadLetterQueue, domain: str, caplog: Any
    ) -> None:
        there = f"{domain}-there"
        other.put([a_letter(there)])
        assert queue.receive([domain], limit=1, wait=timedelta(0)) == []
        [receipt] = take(queue, [domain, there], 1)
        assert receipt.domain == there
        queue.done([receipt])
        assert f"{queue_name(domain)} does not exist" in caplog.text
        assert not self.exists(domain)

    def test_what_is_created_meanwhile_is_used(
        self, queue: DeadLetterQueue, other: DeadLetterQueue, domain: str
    ) -> None:
        assert queue.put([a_letter(domain)]) != [None]
        other.put([a_letter(domain)])
        assert queue.put([a_letter(domain)]) == [None]
        assert len(take(queue, [domain], 1)) == 1

    def test_what_is_deleted_is_not_created_again(
        self, queue: DeadLetterQueue, other: DeadLetterQueue, domain: str
    ) -> None:
        other.put([a_letter(domain)])
        assert queue.put([a_letter(domain)]) == [None]
        self.delete(domain)
        wait_until(lambda: self.is_refused(queue, domain), "its letters are refused")
        assert not self.exists(domain)

    @abstractmethod
    def delete(self, domain: str) -> None:
        """Delete *domain*'s queue or topic."""

    def is_refused(self, queue: DeadLetterQueue, domain: str) -> bool:
        try:
            return "does not exist" in str(queue.put([a_letter(domain)]))
        except DeadLetterQueueUnavailable:
            return False


class RawLettersContract(LetterRoundContract):
    """What a queue must do besides that carries bytes which are no letter."""

    def test_bytes_that_are_no_letter_are_carried_as_they_are(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        assert isinstance(queue, CarriesRaw)
        told = [
            (b"", ""),
            (b"\xff", JSON_CONTENT_TYPE),
            (b"no letter \xff\x00", "text/odd"),
            (b"no letter at all", JSON_CONTENT_TYPE),
        ]
        raws = [RawLetter(domain=domain, raw=raw, content_type=kind) for raw, kind in told]
        assert queue.put_raw([]) == []
        assert queue.put_raw(raws) == [None] * len(raws)
        taken = take(queue, [domain], len(raws))
        assert sorted((one.raw, one.content_type) for one in taken) == sorted(told)
        queue.done(taken)

    def test_a_letter_beyond_the_bounds_comes_whole_and_is_filed_within_those_that_are_set(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        """The analysis worker's settings hold of what any backend reads."""
        assert isinstance(queue, CarriesRaw)
        raw = nested_letter(LETTER.depth + 1)
        one = RawLetter(domain=domain, raw=raw, content_type=JSON_CONTENT_TYPE)
        assert queue.put_raw([one]) == [None]
        filed: list[Any] = []
        intake = Intake(
            queue=queue,
            deciding=SimpleNamespace(file=filed.extend),  # type: ignore[arg-type]
            clock=SystemClock(),
            domains=[domain],
            bounds=DeadLetterSettings(most_levels=LETTER.depth + 10).bounds,
        )
        wait_until(lambda: intake.turn(NOTHING), "it is filed", PATIENCE)
        (letter,) = filed
        assert (letter.domain, letter.explanation) == (domain, "beyond the bounds")
        assert b"[[[[" in letter.envelope

    def test_what_carried_foreign_bytes_travels_with_them(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        """Key, headers, properties and place of another system's message, and so its id."""
        assert isinstance(queue, CarriesRaw)
        told = [(b"", ""), (b"\xff", "text/\x00odd" + "x" * 2000)]
        raws = [
            RawLetter(domain=domain, raw=raw, content_type=kind, record=a_record(number))
            for number, (raw, kind) in enumerate(told)
        ]
        assert queue.put_raw(raws) == [None] * len(raws)
        taken = take(queue, [domain], len(raws))
        found = {one.raw: one for one in taken}
        for one in raws:
            receipt = found[one.raw]
            assert (receipt.record, receipt.content_type) == (one.record, one.content_type)
            assert receipt.letter is None
            assert name_of(receipt) == one.id
        queue.done(taken)


class ForeignRecordsContract(LetterRoundContract):
    """What a queue on a server must do besides with what other systems put into it."""

    @abstractmethod
    def put_record(self, domain: str, raw: bytes, name: str) -> None:
        """Put bytes into *domain*'s queue, with a header or attribute ``name``."""

    def test_equal_bytes_stay_apart_and_keep_what_carried_them(
        self, opened: Callable[[], DeadLetterQueue], domain: str
    ) -> None:
        first = opened()
        first.put([a_letter(domain)])
        first.done(take(first, [domain], 1))
        for name in "ab":
            self.put_record(domain, b"no letter", name)
        by_name = {self.name_in(one): one for one in take(first, [domain], 2)}
        assert by_name.keys() == {"a", "b"}
        known = {name: name_of(one) for name, one in by_name.items()}
        assert len(set(known.values())) == 2
        assert all(one.raw == b"no letter" and one.record.place for one in by_name.values())
        first.close()
        second = opened()
        again = take(second, [domain], 2)
        assert {self.name_in(one): name_of(one) for one in again} == known  # each is the same
        assert carry_into(second)(again) == [None, None]
        second.done(again)
        moved = take(second, [domain], 2)
        assert {self.name_in(one): name_of(one) for one in moved} == known  # wherever it lies
        assert [one.record for one in again if self.name_in(one) == "a"] == [
            one.record for one in moved if self.name_in(one) == "a"
        ]
        second.done(moved)

    def name_in(self, receipt: Receipt) -> str:
        assert receipt.record is not None
        value = receipt.record.header("name")
        return value.decode() if isinstance(value, bytes) else str(value)


def a_record(number: int = 0) -> ForeignRecord:
    """Return what another system's broker may say of a message."""
    return ForeignRecord(
        broker="kafka",
        place={"topic": "orders", "partition": 0, "offset": number},
        is_unique=True,
        key=b"\x00key",
        headers=(
            ("a", b"1"),
            ("a", b"\xff"),
            ("none", None),
            ("stack", b"x" * 5_000),
            ("x-death", [{"count": 2, "time": datetime(2026, 1, 1, tzinfo=UTC)}]),
            ("Größe", "€\x00"),
        ),
        properties={"timestamp": 1_700_000_000_000, "tombstone": True},
    )


class ChoosyRawLettersContract(RawLettersContract):
    """What a queue must do besides that does not carry content types of any kind."""

    #: One that it cannot carry.
    unfit_type: str

    def test_bytes_whose_content_type_cannot_travel_are_refused_alone_and_for_good(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        assert isinstance(queue, CarriesRaw)
        unfit = RawLetter(domain=domain, raw=b"x", content_type=self.unfit_type)
        answers = queue.put_raw([unfit, RawLetter(domain=domain, raw=b"y", content_type="text/y")])
        assert isinstance(answers[0], TooLarge)
        assert "its content type" in answers[0]
        assert answers[1] is None
        assert [one.raw for one in take(queue, [domain], 1)] == [b"y"]


class LimitedLettersContract(DeadLetterQueueContract):
    """What a queue must do besides that takes letters up to `limit` bytes."""

    limit: int
    #: What it says of a larger one.
    told_limit: str
    #: Bytes of a letter of which a few do not fit into one request.
    several_to_a_request: int

    def test_a_letter_over_the_limit_is_refused_alone(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        large = a_letter(domain, 1, metadata={"large": "x" * self.limit})
        answers = queue.put([a_letter(domain, 0), large, a_letter(domain, 2)])
        assert answers[0] is None
        assert isinstance(answers[1], TooLarge)
        assert self.told_limit in answers[1]
        assert answers[2] is None
        assert ids(take(queue, [domain], 2)) == [f"{domain}-0", f"{domain}-2"]

    def test_bytes_over_the_limit_are_refused_alone(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        raws = [b"\xff", b"\xff" * self.limit, b"\xfe"]
        answers = put_raw(queue, [RawLetter(domain=domain, raw=r, content_type="") for r in raws])
        assert answers[0] is answers[2] is None
        assert isinstance(answers[1], TooLarge)
        assert self.told_limit in answers[1]
        assert {one.raw for one in take(queue, [domain], 2)} == {b"\xff", b"\xfe"}

    def test_letters_that_fill_several_requests_by_their_size_arrive(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        some = "x" * self.several_to_a_request
        letters = [a_letter(domain, n, metadata={"some": some}) for n in range(6)]
        assert queue.put(letters) == [None] * 6
        assert len(take(queue, [domain], 6)) == 6


class CountedLettersContract(DeadLetterQueueContract):
    """What a queue must do besides that counts what waits in it."""

    def test_what_waits_is_counted(self, queue: DeadLetterQueue, domain: str) -> None:
        assert isinstance(queue, CountsWaiting)
        other = f"{domain}-other"
        assert queue.waiting([domain, other]) == {domain: 0, other: 0}
        queue.put(letters_of(domain, 5))
        wait_until(lambda: counted(queue, domain) == 5, "all are counted")
        held = take(queue, [domain], 3)
        wait_until(lambda: counted(queue, domain) == 2, "those in hand are not")
        queue.done(held)
        wait_until(lambda: counted(queue, domain) == 2, "nor those that are done")

    def test_its_depth_is_what_waits_and_is_asked_without_taking_anything(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        other = f"{domain}-other"
        assert depths_of(queue, [domain, other]) == {
            domain: QueueDepth(0, 0), other: QueueDepth(0, 0)
        }  # fmt: skip
        queue.put(letters_of(domain, 5))
        wait_until(lambda: counted(queue, domain) == 5, "all are counted")
        for _ in range(2):
            depth = depths_of(queue, [domain])[domain]
            assert (depth.waiting, depth.kept) == (5, 5)
        done = take(queue, [domain], 3)
        queue.done(done)
        wait_until(lambda: depths_of(queue, [domain])[domain].waiting == 2, "the rest waits")
        rest = {f"{domain}-{n}" for n in range(5)} - set(ids(done))  # partitions have no order
        assert set(ids(take(queue, [domain], 2))) == rest


class ServerDeadLetterQueueContract(DeadLetterQueueContract):
    """What a queue on a server must do besides."""

    @abstractmethod
    def open_away(self, port: int) -> DeadLetterQueue:
        """Open a client of a server on *port* with 1 s of patience and the password ``s3cret``."""

    def test_confirmed_letters_outlive_their_writer(
        self, opened: Callable[[], DeadLetterQueue], domain: str
    ) -> None:
        writer = opened()
        writer.put(letters_of(domain, 2))
        writer.close()
        assert len(take(opened(), [domain], 2)) == 2

    def test_a_queue_that_was_closed_opens_itself_again(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        queue.put([a_letter(domain)])
        queue.close()
        assert queue.put([a_letter(domain, 1)]) == [None]
        assert len(take(queue, [domain], 2)) == 2

    def test_a_forked_child_shares_no_connection(self, queue: DeadLetterQueue, domain: str) -> None:
        queue.put([a_letter(domain, 0)])
        fork = multiprocessing.get_context("fork")
        answers = fork.SimpleQueue()
        child = fork.Process(target=lambda: answers.put(queue.put([a_letter(domain, 1)])))
        child.start()
        child.join(60)
        assert answers.get() == [None]
        assert queue.put([a_letter(domain, 2)]) == [None]
        assert len(take(queue, [domain], 3)) == 3

    @pytest.fixture(params=["closed", "silent"])
    def away_port(self, request: pytest.FixtureRequest) -> Iterator[int]:
        """A port where nobody listens, or where somebody accepts and says nothing."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            if request.param == "closed":
                listener.close()
            yield port

    def test_a_server_that_is_away_is_told_quickly_and_without_secrets(
        self, away_port: int, domain: str
    ) -> None:
        queue = self.open_away(away_port)
        calls: list[Callable[[], object]] = [
            lambda: queue.put([a_letter(domain)]),
            lambda: queue.receive([domain], limit=1, wait=NOTHING),
        ]
        for call in calls:
            started = time.monotonic()
            with pytest.raises(DeadLetterQueueUnavailable) as caught:
                call()
            assert time.monotonic() - started < 80
            assert "s3cret" not in str(caught.value)
            assert "\n" not in str(caught.value)
        queue.close()
