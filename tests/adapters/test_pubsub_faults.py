"""What the dead-letter queue on Pub/Sub makes of refusals, outages and kills."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import grpc
import pytest
from google.cloud.pubsub_v1 import PublisherClient
from google.cloud.pubsub_v1.publisher._sequencer.ordered_sequencer import OrderedSequencer
from google.cloud.pubsub_v1.publisher._sequencer.unordered_sequencer import UnorderedSequencer
from google.protobuf.any_pb2 import Any
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status

from adapters import pubsub_site
from adapters.pubsub_faults import Faults
from adapters.pubsub_site import LEASE, PROJECT
from angzarr.adapters.pubsub.dead_letters import PubSubDeadLetterQueue
from angzarr.errors import DeadLetterQueueUnavailable
from angzarr.events.event import Event
from contracts.dead_letters import NOTHING, a_letter, ids, letters_of, take
from polling import wait_until
from tcp_proxy import LossyProxy


@pytest.fixture
def opened(pubsub_emulator: str) -> Iterator[Callable[..., PubSubDeadLetterQueue]]:
    queues = []

    def open_one(**changes):
        queues.append(PubSubDeadLetterQueue(PROJECT, **({"lease": LEASE} | changes)))
        return queues[-1]

    yield open_one
    for queue in queues:
        queue.close()


@pytest.fixture
def faults(pubsub_emulator: str, monkeypatch: pytest.MonkeyPatch) -> Faults:
    return Faults(monkeypatch)


@pytest.fixture
def domain(unique_name: str) -> str:
    return unique_name


# -- refusals --------------------------------------------------------------------------------


def test_the_refusal_of_one_letter_of_a_batch_is_seen_and_spares_the_others(faults, opened, domain):
    queue = opened()
    faults.of_text[b"poisoned"] = grpc.StatusCode.INVALID_ARGUMENT
    letters = letters_of(domain, 5)
    letters[2] = replace(letters[2], explanation="poisoned")
    answers = queue.put(letters)
    assert answers.pop(2) == "Pub/Sub did not take it: InvalidArgument so be it"
    assert answers == [None] * 4
    assert ids(take(queue, [domain], 4)) == [f"{domain}-{n}" for n in (0, 1, 3, 4)]


def test_a_role_that_is_missing_is_told_with_the_cure(faults, opened, domain):
    queue, denied = opened(), grpc.StatusCode.PERMISSION_DENIED
    faults.codes["Publish"] = [denied]
    assert "PermissionDenied so be it; it needs roles/pubsub." in queue.put([a_letter(domain)])[0]
    faults.codes["GetSubscription"] = [denied] * 2
    other = f"{domain}-other"
    assert "cannot be had: PermissionDenied" in queue.put([a_letter(other)])[0]
    with pytest.raises(DeadLetterQueueUnavailable, match="it needs roles/pubsub"):
        queue.receive([other], limit=1, wait=NOTHING)
    assert queue.put([a_letter(domain), a_letter(other)]) == [None, None]


def test_a_domain_that_cannot_be_read_keeps_no_other_one_back(faults, opened, domain):
    queue, other = opened(), f"{domain}-other"
    queue.put([a_letter(domain), a_letter(other)])
    faults.codes["GetSubscription"] = [grpc.StatusCode.PERMISSION_DENIED]
    first, second = sorted([domain, other])
    assert ids(queue.receive([first, second], limit=2, wait=timedelta(seconds=9))) == [
        f"{second}-0"
    ]
    assert ids(take(queue, [first, second], 1)) == [f"{first}-0"]


def test_what_pubsub_took_before_it_went_away_counts(faults, opened, domain):
    queue, other = opened(), f"{domain}-other"
    assert queue.put([a_letter(domain), a_letter(other)]) == [None, None]
    faults.of_text[b"unheard"] = grpc.StatusCode.UNAVAILABLE
    unheard = a_letter(other, 1, explanation="unheard")
    answers = queue.put([a_letter(domain, 1), unheard])
    assert answers == [None, "Pub/Sub did not take it: no answer (ServiceUnavailable)"]
    with pytest.raises(DeadLetterQueueUnavailable, match="no answer"):
        queue.put([unheard])


def test_a_key_goes_on_after_one_of_its_letters_was_refused(faults, opened, domain):
    queue = opened(ordering=True)
    faults.of_text[b"poisoned"] = grpc.StatusCode.PERMISSION_DENIED
    mine = Event(id="e", type="order.placed", data={}, root="x" * 2_000)
    poisoned = a_letter(domain, 0, event=mine, explanation="poisoned")
    assert queue.put([poisoned]) != [None]
    assert queue.put([a_letter(domain, 1, event=mine), a_letter(domain, 2)]) == [None, None]
    assert ids(take(queue, [domain], 2)) == [f"{domain}-1", f"{domain}-2"]


def test_no_letter_overtakes_another_of_its_key_that_was_refused(faults, opened, domain):
    queue = opened(ordering=True)
    mine = Event(id="e", type="order.placed", data={}, root="r-mine")
    large = {"some": "x" * 3_000_000}  # so that each travels in a request of its own
    first, second = (a_letter(domain, n, event=mine, metadata=large) for n in range(2))
    queue.put([a_letter(domain, 7)])
    faults.codes["Publish"] = [grpc.StatusCode.UNAVAILABLE]
    assert queue.put([first, second]) == [
        "Pub/Sub did not take it: no answer (ServiceUnavailable)",
        "Pub/Sub did not take the letter before it, whose ordering key it shares",
    ]
    assert queue.put([first, second]) == [None, None]


def test_no_letter_overtakes_another_of_its_key_that_is_just_being_refused(
    faults, opened, domain, monkeypatch
):
    """The client fails an assertion between the answer to a request and the pause of its key."""
    queue, answered, over = opened(ordering=True), threading.Event(), threading.Event()
    paused, publish = OrderedSequencer._batch_done_callback, PublisherClient.publish
    turns, said = iter([threading.Event(), answered]), []

    def pause_late(self, success):
        answered.set()
        over.wait(60)
        paused(self, success)

    def publish_in_between(self, *args, **kwargs):
        if next(turns) is not answered:
            return publish(self, *args, **kwargs)
        try:
            assert answered.wait(60)
            return publish(self, *args, **kwargs)
        except AssertionError as error:
            said.append(str(error))
            raise
        finally:
            over.set()

    mine = Event(id="e", type="order.placed", data={}, root="r-mine")
    first, second = (a_letter(domain, n, event=mine) for n in range(2))
    queue.put([a_letter(domain, 7)])
    faults.codes["Publish"] = [grpc.StatusCode.UNAVAILABLE]
    with monkeypatch.context() as patch:
        patch.setattr(OrderedSequencer, "_batch_done_callback", pause_late)
        patch.setattr(PublisherClient, "publish", publish_in_between)
        assert queue.put([first, second]) == [
            "Pub/Sub did not take it: no answer (ServiceUnavailable)",
            "Pub/Sub did not take the letter before it, whose ordering key it shares",
        ]
    assert said == ["Publish after stop() or publish error."]
    assert queue.put([first, second]) == [None, None]


def test_a_letter_behind_one_that_is_just_being_refused_is_published_again(
    opened, domain, monkeypatch
):
    queue, publish = opened(), UnorderedSequencer.publish
    failing = iter([AssertionError("Publish after stop() or publish error.")])

    def publish_once_failing(self, *args, **kwargs):
        if error := next(failing, None):
            raise error
        return publish(self, *args, **kwargs)

    monkeypatch.setattr(UnorderedSequencer, "publish", publish_once_failing)
    assert queue.put(letters_of(domain, 2)) == [None, None]
    assert sorted(ids(take(queue, [domain], 2))) == [f"{domain}-0", f"{domain}-1"]


def test_a_refused_acknowledgement_is_raised_and_may_be_repeated(faults, opened, domain):
    queue = opened()
    queue.put(letters_of(domain, 3))
    taken = take(queue, [domain], 3)
    ended, transient, _ = (receipt.handle.ack_id for receipt in taken)
    refusals = [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.FAILED_PRECONDITION]
    faults.codes["Acknowledge"] = list(refusals)
    with pytest.raises(DeadLetterQueueUnavailable, match="no answer"):
        queue.done(taken)
    faults.trailing = told_of_each(
        {ended: "PERMANENT_FAILURE_INVALID_ACK_ID", transient: "TRANSIENT_FAILURE_OTHER"}
    )
    with pytest.raises(DeadLetterQueueUnavailable, match="1 letters could not be acknowledged"):
        queue.done(taken)
    queue.done(taken)
    queue.done(taken)
    assert faults.asked["Acknowledge"] == 3


def told_of_each(why: dict[str, str]) -> tuple[tuple[str, bytes], ...]:
    """Return what an exactly-once subscription adds to an error: the reason of each lease."""
    detail = Any()
    detail.Pack(ErrorInfo(reason="some", domain="pubsub.googleapis.com", metadata=why))
    code, _ = grpc.StatusCode.FAILED_PRECONDITION.value
    status = Status(code=code, message=Faults.SAID, details=[detail])
    return (("grpc-status-details-bin", status.SerializeToString()),)


# -- outages ---------------------------------------------------------------------------------


@pytest.fixture
def proxy(pubsub_emulator: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[LossyProxy]:
    """A bad line to the emulator, over which clients that are made from now on go."""
    host, _, port = pubsub_emulator.partition(":")
    with LossyProxy(host, int(port)) as line:
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", f"127.0.0.1:{line.port}")
        yield line


def test_an_outage_in_the_midst_costs_no_letter(proxy, opened, domain, caplog):
    queue = opened(timeout=timedelta(seconds=1))
    queue.put(letters_of(domain, 2))
    [held] = take(queue, [domain], 1)
    proxy.cut()
    for call in (lambda: queue.put([a_letter(domain, 2)]), lambda: queue.done([held])):
        with pytest.raises(DeadLetterQueueUnavailable, match="no answer"):
            call()
    proxy.mend()
    wait_until(lambda: put_again(queue, a_letter(domain, 2)), "the letter is taken")
    queue.done([held])
    rest = {f"{domain}-{n}" for n in range(3)} - {held.letter.id}
    assert rest <= set(ids(take(queue, [domain], 2)))
    assert not [record for record in caplog.records if record.exc_info]


def put_again(queue, letter):
    try:
        return queue.put([letter]) == [None]
    except DeadLetterQueueUnavailable:
        return False


def test_closing_amid_an_outage_is_quick_and_quiet(proxy, opened, domain, caplog):
    queue = opened(timeout=timedelta(seconds=1))
    queue.put(letters_of(domain, 2))
    take(queue, [domain], 1)
    proxy.cut()
    queue.close()
    assert not [record for record in caplog.records if record.exc_info]


def test_missing_credentials_are_told_with_the_cure(opened, domain, monkeypatch, tmp_path):
    for name in ("PUBSUB_EMULATOR_HOST", "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    with pytest.raises(DeadLetterQueueUnavailable, match="set GOOGLE_APPLICATION_CREDENTIALS"):
        opened().put([a_letter(domain)])


# -- forks -----------------------------------------------------------------------------------


def test_a_child_that_is_forked_amid_calls_of_other_threads_can_put_letters(opened, domain):
    queue, stop = opened(), threading.Event()
    queue.put([a_letter(domain)])
    answers = []

    def keep_putting() -> None:
        while not stop.is_set():
            answers.extend(queue.put([a_letter(domain)]))

    busy = [threading.Thread(target=keep_putting) for _ in range(2)]
    for thread in busy:
        thread.start()
    try:
        said = [in_a_child(lambda: queue.put([a_letter(domain)])) for _ in range(10)]
    finally:
        stop.set()
        for thread in busy:
            thread.join()
    assert said == [[None]] * 10
    assert set(answers) == {None}


def test_a_child_of_a_process_that_receives_is_told_and_does_not_hang(opened, domain):
    queue = opened()
    queue.put([a_letter(domain)])
    take(queue, [domain], 1)
    said = in_a_child(lambda: put_again(queue, a_letter(domain, 1)))
    assert said is False
    assert queue.put([a_letter(domain, 1)]) == [None]


def in_a_child(call):
    """Return what *call* returns in a forked child."""
    fork = multiprocessing.get_context("fork")
    answers = fork.SimpleQueue()
    child = fork.Process(target=lambda: answers.put(call()))
    child.start()
    child.join(60)
    if child.exitcode is None:
        child.kill()
        pytest.fail("the child hangs")
    return answers.get()


# -- leases ----------------------------------------------------------------------------------


def receiving(domain: str, *options: str) -> subprocess.Popen[str]:
    """Take one letter in another process."""
    return subprocess.Popen(
        [sys.executable, pubsub_site.__file__, domain, *options],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_a_killed_receivers_letter_comes_to_another_whose_own_leases_are_renewed(opened, domain):
    queue = opened()
    queue.put([a_letter(domain)])
    with receiving(domain) as receiver:
        assert receiver.stdout.readline() == f"{domain}-0\n"
        queue.put([a_letter(domain, 1)])
        with_us = f"{domain}-other"
        queue.put([a_letter(with_us)])
        [held] = take(queue, [with_us], 1)
        receiver.send_signal(signal.SIGKILL)
    # It takes the first one's lease to come, after which ours would have ended as well.
    assert ids(take(queue, [domain, with_us], 2)) == [f"{domain}-0", f"{domain}-1"]
    assert queue.receive([with_us], limit=1, wait=NOTHING) == []
    queue.done([held])


def test_a_process_ends_by_itself_with_letters_in_hand(opened, domain):
    opened().put(letters_of(domain, 3))
    with receiving(domain, "--end") as receiver:
        said, _ = receiver.communicate(timeout=60)
    assert said.strip() in {f"{domain}-{n}" for n in range(3)}
    assert receiver.returncode == 0
