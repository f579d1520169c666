"""Letters of large messages, whose bodies hide nothing, before they are redacted or sealed."""

from __future__ import annotations

import json
from dataclasses import replace

from angzarr.dead_letters.offloading_queue import without_body
from angzarr.dead_letters.protection import ProtectedQueue, Protection
from angzarr.dead_letters.redaction import Redaction
from angzarr.dead_letters.whole_letters import WholeLetterQueue
from angzarr.errors import PayloadStoreUnavailable
from contracts.dead_letters import a_letter
from memory_payloads import MemoryPayloadStore

SECRET = json.dumps([[{"name": "s3cret", "n": 1}], {}, {}]).encode()


class Queue:
    def __init__(self):
        self.letters = []

    def put(self, letters):
        self.letters.extend(letters)
        return [None] * len(letters)


class Away(MemoryPayloadStore):
    away = False

    def fetch(self, reference):
        if self.away:
            raise PayloadStoreUnavailable("the payload store is away")
        return super().fetch(reference)


def large(store, number=0):
    letter = a_letter("thing", number)
    whole = replace(letter, message=replace(letter.message, body=SECRET))
    return without_body(whole, store.put(SECRET))


def guarded(store):
    queue = Queue()
    protect = Protection(redaction=Redaction.of(["**.name"], []))
    return queue, WholeLetterQueue(ProtectedQueue(queue, protect), store)


def test_the_body_behind_a_reference_is_redacted_like_any_other():
    store = Away()
    queue, whole = guarded(store)
    assert whole.put([large(store), a_letter("thing", 1)]) == [None, None]
    first, second = queue.letters
    assert first.payload is None
    assert b"s3cret" not in first.message.body
    assert json.loads(first.message.body)[0][0]["n"] == 1
    assert first.event.data["n"] == 1
    assert second.id == a_letter("thing", 1).id


def test_while_the_store_is_away_only_letters_that_need_it_are_refused():
    store = Away()
    queue, whole = guarded(store)
    letter, store.away = large(store), True
    answers = whole.put([letter, a_letter("thing", 1)])
    assert answers == ["the payload store is away", None]
    assert [one.id for one in queue.letters] == [a_letter("thing", 1).id]


def test_a_body_that_is_gone_hides_nothing_and_its_letter_goes():
    store = Away()
    queue, whole = guarded(store)
    letter = large(store)
    store.payloads.clear()
    assert whole.put([letter]) == [None]
    assert queue.letters[0].payload == letter.payload
