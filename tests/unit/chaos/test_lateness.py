"""What explains that an event began late, and how much of it."""

from __future__ import annotations

from tests.unit.chaos.conftest import around, disturbed

from chaos.disturbances import RETURN, Outage, What
from chaos.lateness import GIVEN_BACK, HANDS, PROMISED, SLOW, Lateness, Queued, Span

LEAST = PROMISED + SLOW


def allowed(start, end, *, queued=(), outages=(), disturbances=()):
    return Lateness(
        around=around(*disturbances, outages=outages), queued=[Queued(*one) for one in queued]
    ).allowed(Span(start, end))


def test_without_anything_on_record_an_event_is_in_time():
    assert allowed(100, 600) == LEAST


def test_a_server_that_was_away_excuses_as_long_as_it_was():
    assert allowed(100, 600, outages=[Outage(start=90, end=107)]) == LEAST + 7 + RETURN
    twice = [Outage(start=90, end=107), Outage(start=101, end=109)]  # seen by the canary as well
    assert allowed(100, 600, outages=twice) == LEAST + 9 + RETURN
    for elsewhen in (Outage(start=50, end=99), Outage(start=601, end=700)):
        assert allowed(100, 600, outages=[elsewhen]) == LEAST
    letters = Outage(start=90, end=107, in_part=True)  # who waits for it keeps a slot
    assert allowed(100, 600, outages=[letters]) == LEAST + 7 + RETURN


def test_a_worker_that_was_disturbed_excuses_until_what_it_held_is_back():
    frozen = disturbed(What.FROZEN, 102, 112)
    assert allowed(100, 600, disturbances=[frozen]) == LEAST + 10 + GIVEN_BACK
    assert allowed(100, 115, disturbances=[frozen]) == LEAST + 13, "it began before that"
    assert allowed(100, 600, disturbances=[disturbed(start=99)]) == LEAST, "it was not due then"


def test_workers_that_were_disturbed_all_the_time_excuse_no_more_than_a_few_hands():
    killed = [disturbed(start=at) for at in range(100, 600, 4)]
    assert allowed(100, 600, disturbances=killed) == LEAST + HANDS * GIVEN_BACK


def test_the_backlog_is_what_others_waited_in_the_middle():
    queued = [(98, 4.0), (101, 5.0), (104, 90.0), (50, 70.0)]
    assert allowed(100, 600, queued=queued) == LEAST + 5.0
