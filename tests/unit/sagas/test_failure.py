"""SagaCompensationFailed: the same for the same rejection, and as other languages read it."""

from __future__ import annotations

import json
from datetime import UTC

import pytest
from pydantic import BaseModel
from tests.chain_world import a_rejection, address
from tests.hand_clock import START

from angzarr.errors import UnserializableEvent
from angzarr.events.event import decoder_for, event_type_of
from angzarr.sagas.escalation import (
    EVENT_TYPE,
    SagaCompensationFailed,
    failure_event,
    failure_to_wire,
)
from angzarr.wire.rejection_pb2 import SagaCompensationFailed as WireFailed


class Seat(BaseModel):
    player_id: str = "p-1"


def test_the_same_rejection_has_the_same_event():
    rejection = a_rejection(Seat(), correlation_id="flow")
    one, two = (failure_event(rejection, "too late", "failures", START) for _ in range(2))
    assert one == two
    assert one.id != failure_event(a_rejection(Seat(), id="c-2"), "r", "failures", START).id


@pytest.mark.parametrize("edition", ["", "what-if"])
def test_a_handler_is_given_all_of_it(edition):
    rejection = a_rejection(Seat(), source=address(edition=edition), edition=edition or None)
    event = failure_event(rejection, "too late", "failures", START)
    assert event.type == EVENT_TYPE == event_type_of(SagaCompensationFailed)
    assert event.edition == (edition or None)
    told = decoder_for(SagaCompensationFailed)(json.loads(json.dumps(event.data)))
    assert told.triggering_aggregate == address(edition=edition)
    assert told.rejected_command.address == ("table", "t-1", edition)
    assert told.occurred_at == START


def test_other_languages_read_the_same():
    rejection = a_rejection(Seat(), correlation_id="flow", sequence=7)
    made = failure_to_wire(rejection, "too late", START)
    told = WireFailed.FromString(made.SerializeToString())
    assert (told.triggering_aggregate.domain, told.triggering_event_sequence) == ("player", 7)
    assert told.triggering_aggregate.correlation_id == "flow"
    assert (told.saga_name, told.rejection_reason) == ("seating", "full")
    assert told.compensation_failure_reason == "too late"
    assert told.rejected_command.cover.domain == "table"
    assert told.occurred_at.ToDatetime(UTC) == START


def test_a_root_that_the_wire_cannot_carry_is_refused():
    with pytest.raises(UnserializableEvent):
        failure_to_wire(a_rejection(Seat(), source=address(root="x" * 16)), "r", START)
