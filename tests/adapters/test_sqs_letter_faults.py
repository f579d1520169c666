"""What SQS and SNS refuse, or leave unanswered, is never taken for a letter that is kept."""

from __future__ import annotations

from datetime import timedelta

import pytest

from adapters.aws_letters import AwsLetters, TopicLetters
from adapters.sqs_faults import LetterFaults
from angzarr.errors import DeadLetterQueueUnavailable
from contracts.dead_letters import a_letter, ids, letters_of, take


@pytest.fixture
def domain(unique_name):
    return unique_name


class FaultyLetters:
    """The faults that putting letters meets, whatever takes them."""

    service: str
    sending: str
    denied = "AccessDenied"

    @pytest.fixture
    def faults(self, backend, monkeypatch):
        return LetterFaults(monkeypatch)

    @pytest.fixture
    def queue(self, faults, domain):
        queue = self.open()
        queue.put([a_letter(domain, 100)])
        queue.done(take(queue, [domain], 1))
        yield queue
        queue.close()

    def test_the_entry_that_is_refused_is_the_only_one_that_must_be_put_again(
        self, queue, faults, domain
    ):
        def refuse_second(reply):
            entry = reply["Successful"].pop(1)
            reply["Failed"] = [
                {"Id": entry["Id"], "Code": "InternalError", "SenderFault": False, "Message": "x"}
            ]

        faults.replies[self.sending] = refuse_second
        told = f"{self.service} refused it: InternalError x"
        assert queue.put(letters_of(domain, 3)) == [None, told, None]

    def test_an_entry_of_which_nothing_is_said_is_not_taken_for_kept(self, queue, faults, domain):
        faults.replies[self.sending] = lambda reply: reply["Successful"].pop()
        answers = queue.put(letters_of(domain, 2))
        assert answers == [None, f"{self.service} did not answer for it"]

    @pytest.mark.parametrize("fault", ["Throttling", "denied"])
    def test_a_refusal_of_all_is_told_and_they_are_taken_afterwards(
        self, queue, faults, domain, fault
    ):
        code = self.denied if fault == "denied" else fault
        faults.codes[self.sending] = code
        told = f"{self.service} does not take dead letters: {code} so be it"
        with pytest.raises(DeadLetterQueueUnavailable, match=told):
            queue.put(letters_of(domain, 12))
        faults.codes.clear()
        assert queue.put(letters_of(domain, 2)) == [None, None]
        assert ids(take(queue, [domain], 2)) == [f"{domain}-0", f"{domain}-1"]

    def test_no_answer_is_waited_for_once_and_tells_no_address(self, queue, faults, domain):
        faults.mute.add(self.sending)
        faults.asked.clear()
        with pytest.raises(DeadLetterQueueUnavailable, match="no answer") as caught:
            queue.put(letters_of(domain, 25))
        assert "s3cret" not in str(caught.value)
        assert faults.asked[self.sending] <= 2, "the second is the client's own"
        faults.mute.clear()
        assert queue.put([a_letter(domain)]) == [None]


class TestSqsLetterFaults(AwsLetters, FaultyLetters):
    service, sending = "SQS", "SendMessageBatch"

    def test_letters_taken_before_a_failure_are_handed_out(self, queue, faults, domain, caplog):
        other = f"{domain}-other"
        queue.put([a_letter(domain), a_letter(other)])
        faults.replies["ReceiveMessage"] = lambda _: faults.mute.add("ReceiveMessage")
        taken = queue.receive([domain, other], limit=5, wait=timedelta(0))
        assert len(taken) == 1
        assert "cannot be received: no answer" in caplog.text
        faults.mute.clear()
        faults.replies.clear()
        assert len(take(queue, [domain, other], 1)) == 1

    def test_a_queue_that_may_not_be_read_keeps_no_others_back(self, queue, faults, domain, caplog):
        other = f"{domain}-other"
        queue.put([a_letter(domain), a_letter(other)])
        faults.codes["ReceiveMessage"], faults.only = "AccessDenied", other
        for _ in range(2):
            taken = take(queue, [other, domain], 1)
            assert ids(taken) == [f"{domain}-0"]
            queue.done(taken)
            queue.put([a_letter(domain)])
        assert (
            caplog.text.count(f"dead_letters_not_read: those of {other} cannot be received: Access")
            == 1
        )
        faults.codes.clear()
        assert len(take(queue, [other, domain], 2)) == 2

    def test_letters_that_cannot_be_deleted_are_told_and_deleted_later(self, queue, faults, domain):
        queue.put([a_letter(domain)])
        taken = take(queue, [domain], 1)
        faults.codes["DeleteMessageBatch"] = "AccessDenied"
        with pytest.raises(DeadLetterQueueUnavailable, match="AccessDenied"):
            queue.done(taken)
        faults.codes.clear()
        queue.done(taken)
        assert queue.receive([domain], limit=1, wait=timedelta(0)) == []

    def test_without_the_right_to_look_at_a_queue_letters_are_put_all_the_same(
        self, queue, faults, domain
    ):
        queue._queues._urls.clear()
        queue._queues._check._judged.clear()
        faults.codes["GetQueueAttributes"] = "AccessDenied"
        assert queue.put([a_letter(domain)]) == [None]
        assert faults.asked["GetQueueAttributes"] >= 1


class TestSnsLetterFaults(TopicLetters, FaultyLetters):
    service, sending, denied = "SNS", "PublishBatch", "AuthorizationError"

    @pytest.mark.parametrize("fault", ["refused entry", "denied", "mute"])
    def test_after_an_error_the_topic_is_looked_at_before_it_is_trusted(
        self, queue, faults, domain, fault
    ):
        if fault == "refused entry":
            faults.replies[self.sending] = lambda r: r.update(
                Failed=[{"Id": r["Successful"].pop()["Id"], "Code": "E", "SenderFault": False}]
            )
            queue.put([a_letter(domain)])
        else:
            faults.codes = {self.sending: self.denied} if fault == "denied" else {}
            faults.mute = {self.sending} if fault == "mute" else set()
            with pytest.raises(DeadLetterQueueUnavailable):
                queue.put([a_letter(domain)])
        faults.codes, faults.mute, faults.replies = {}, set(), {}
        faults.asked.clear()
        assert queue.put([a_letter(domain)]) == [None]
        assert faults.asked["GetSubscriptionAttributes"] == 1

    @pytest.mark.parametrize(
        ("operation", "code"),
        [
            ("GetQueueAttributes", "AccessDenied"),
            ("GetTopicAttributes", "AuthorizationError"),
            ("GetSubscriptionAttributes", "AuthorizationError"),
        ],
    )
    def test_a_topic_that_cannot_be_looked_at_is_given_no_letter(
        self, queue, faults, domain, operation, code
    ):
        queue._topics.doubt(domain)
        faults.codes[operation] = code
        faults.asked.clear()
        with pytest.raises(DeadLetterQueueUnavailable, match=code):
            queue.put([a_letter(domain)])
        assert faults.asked[self.sending] == 0

    def test_one_topic_that_loses_letters_keeps_no_others_back(self, queue, domain):
        other = f"{domain}-other"
        self.make_queue(other, Policy='{"Statement": []}')
        answers = queue.put([a_letter(other), a_letter(domain), a_letter(other, 1)])
        assert [answer is None for answer in answers] == [False, True, False]
        assert "add the statement of" in str(answers[0])
