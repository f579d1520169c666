"""Beat ends when it is told to, and cuts no publish but one that a broker never answers."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
from celery import Celery
from celery.beat import Scheduler, Service

from angzarr.adapters.celery import beat

NUMBERS = (signal.SIGTERM, signal.SIGINT)


@pytest.fixture(autouse=True)
def same_handlers(monkeypatch):
    monkeypatch.setattr(beat, "LONGEST_ROUND", 600.0)
    before = {number: signal.getsignal(number) for number in NUMBERS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


class Rounds(Scheduler):
    """Does in each round what a test wants, and writes down what it did."""

    work = staticmethod(lambda: None)

    def __init__(self, *args, **options):
        self.did = []
        super().__init__(*args, **options)

    def tick(self, *_, **__):
        self.did.append("begins")
        self.work()
        self.did.append("ends")
        return 600.0

    def close(self):
        self.did.append("closes")
        super().close()


@pytest.fixture
def service():
    app = Celery("clock", broker="memory://", set_as_current=False)
    service = Service(app, scheduler_cls=Rounds)
    beat.end_between_rounds(sender=service)
    return service


def tell_soon(number):
    threading.Timer(0.2, os.kill, (os.getpid(), number)).start()


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_amid_a_round_ends_beat_behind_it(service, number):
    service.scheduler.work = lambda: os.kill(os.getpid(), number) or time.sleep(0.01)
    service.start()
    assert service.scheduler.did == ["begins", "ends", "closes"]


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_between_two_rounds_ends_the_wait(service, number):
    service.scheduler.work = lambda: tell_soon(number)
    service.start()
    assert service.scheduler.did == ["begins", "ends", "closes"]


def test_a_round_that_does_not_end_is_cut(service, monkeypatch):
    monkeypatch.setattr(beat, "LONGEST_ROUND", 0.1)
    service.scheduler.work = lambda: os.kill(os.getpid(), signal.SIGTERM) or time.sleep(600)
    service.start()
    assert service.scheduler.did == ["begins", "closes"]


@pytest.mark.parametrize("number", NUMBERS)
def test_what_beat_does_last_is_cut_by_no_second_signal_and_by_a_third(
    service, monkeypatch, number
):
    close = Rounds.close

    def struck(self):
        os.kill(os.getpid(), number)
        close(self)
        assert {signal.getsignal(one) for one in NUMBERS} == {signal.SIG_DFL}

    monkeypatch.setattr(Rounds, "close", struck)
    service.scheduler.work = lambda: os.kill(os.getpid(), signal.SIGTERM)
    service.start()
    assert service.scheduler.did[-1] == "closes"


def test_a_beat_in_a_thread_of_a_worker_is_left_to_it():
    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=beat.end_between_rounds, args=(object(),))
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is before


def test_every_app_ends_its_beat_so(app):
    service = app.Beat().Service(app=app, scheduler_cls=Rounds)
    service.scheduler.work = lambda: os.kill(os.getpid(), signal.SIGTERM) or time.sleep(0.01)
    service.start()
    assert service.scheduler.did == ["begins", "ends", "closes"]
