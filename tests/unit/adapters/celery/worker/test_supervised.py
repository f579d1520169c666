"""How busy a supervised process is."""

from __future__ import annotations

from angzarr.adapters.celery.worker.supervised import TimedPoller


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


class Poller:
    fds = (7,)

    def __init__(self, clock, lasts):
        self._clock, self._lasts = clock, lasts

    def poll(self, timeout):
        self._clock.now += self._lasts
        return [timeout]


def test_it_knows_which_part_of_the_time_it_waited():
    clock = Clock()
    poller = TimedPoller(Poller(clock, 3.0), clock)
    assert poller.poll(1) == [1]
    clock.now += 1.0
    assert poller.share() == 0.75
    clock.now += 1.0
    assert poller.share() == 0.0
    assert poller.fds == (7,)


def test_a_wait_that_goes_on_counts_so_far():
    clock = Clock()
    seen = []

    class Asks(Poller):
        def poll(self, timeout):
            self._clock.now += 1.0
            seen.append(poller.share())
            self._clock.now += 1.0
            return []

    poller = TimedPoller(Asks(clock, 0.0), clock)
    poller.poll(1)
    assert seen == [1.0]
    assert poller.share() == 1.0
