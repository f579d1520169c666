"""What a handler that gives up wants done behind its letter."""

from __future__ import annotations

import pytest

from angzarr.dead_letters.letter import Reason
from angzarr.delivery.settle import MOST_REFUSALS
from angzarr.errors import BrokerUnavailable, CompensationFailed


@pytest.fixture
def failing(world):
    """Let the handler give up, and *then* follow its letter."""

    def failing(then):
        def handler(_event, _context):
            raise CompensationFailed("nobody undid it", then)

        world.handler(handler)
        return world.take()

    return failing


def test_it_is_done_once_the_letter_is_there_and_before_the_claim_ends(world, failing):
    seen = []
    outcome = failing(lambda: seen.append(len(world.journal.letters)))
    assert seen == [1]
    assert outcome.letter.reason is Reason.COMPENSATION


def test_while_the_broker_is_away_it_is_tried_again_and_the_letter_is_not(world, failing):
    tries = []

    def then():
        tries.append(1)
        if len(tries) < 30:
            raise BrokerUnavailable("away")

    failing(then)
    assert len(tries) == 30
    assert len(world.journal.letters) == 1


def test_what_the_broker_refuses_is_not_tried_for_ever(world, failing, caplog):
    tries = []

    def then():
        tries.append(1)
        raise BrokerUnavailable("its queue has other arguments", refused=True)

    failing(then)
    assert len(tries) == MOST_REFUSALS
    assert len(world.journal.letters) == 1
    assert "not_sent_behind_its_letter" in caplog.text


def test_room_in_a_full_queue_is_waited_for_however_long_it_takes(world, failing):
    tries = []

    def then():
        tries.append(1)
        if len(tries) < 3 * MOST_REFUSALS:
            raise BrokerUnavailable("its queue is full", refused=True, passing=True)

    failing(then)
    assert len(tries) == 3 * MOST_REFUSALS
