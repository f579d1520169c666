"""What a handler reads: the first reader wins, kills change nothing, a store that is away waits."""

from __future__ import annotations

import pytest
from tests.contracts.configuration import draft

from angzarr.adapters.memory.configuration import MemoryPinStore
from angzarr.configuration.pins import MOST_PINS
from angzarr.configuration.reader import ConfigurationReader
from angzarr.delivery.context import Context
from angzarr.delivery.delivery import DeadLettered, Handled, Retried
from angzarr.errors import ConfigurationError, StoreUnavailable
from angzarr.events import headers as names


@pytest.fixture
def world(world):
    world.read = []
    world.configurations.put(draft("pricing", "1"))

    def read(_data, context):
        world.read.append(context.config("pricing"))

    world.handler(read)
    return world


def change(world):
    """Put another version; who asks from now on what is current is told so."""
    world.configurations.put(draft("pricing", "2"))
    world.reader.forget_current()


class Away(MemoryPinStore):
    def __init__(self, clock, times):
        super().__init__(clock)
        self.times = times

    def _fail(self):
        if self.times:
            self.times -= 1
            raise StoreUnavailable("away")

    def keep(self, key, pins):
        self._fail()
        return super().keep(key, pins)

    def read(self, key):
        self._fail()
        return super().read(key)


def test_the_pin_is_kept_before_the_value_is_known(world):
    delivery = world.delivery()
    assert isinstance(world.road().take(delivery), Handled)
    assert world.pins.read(delivery.key) == {"pricing": "1"}
    assert (world.read, delivery.event.config_pins) == ([1], {"pricing": "1"})


def test_a_successor_of_a_killed_worker_sees_what_it_read(world):
    world.pins.keep(world.delivery().key, {"pricing": "1"})  # and then it was killed
    world.died(1)
    change(world)
    world.road().take(world.delivery())
    assert world.read == [1]


def test_the_letter_of_what_kills_its_workers_carries_what_they_read(world):
    world.pins.keep(world.delivery().key, {"pricing": "1"})
    world.died(3)
    change(world)
    outcome = world.road().take(world.delivery())
    assert isinstance(outcome, DeadLettered)
    assert (outcome.letter.reason, world.read) == ("poison", [])
    assert outcome.letter.event.config_pins == {"pricing": "1"}
    assert names.pins_of(outcome.letter.message.headers) == {"pricing": "1"}


def test_the_copy_of_what_no_process_settled_carries_what_it_read(world):
    """A hard time limit: the parent makes the copy, and did not read."""
    world.pins.keep(world.delivery().key, {"pricing": "1"})
    outcome = world.road().take(world.delivery(), ConnectionError("its time was over"))
    assert isinstance(outcome, Retried)
    ((copy, _),) = world.journal.copies
    assert names.pins_of(copy.headers) == {"pricing": "1"}


def test_an_event_that_comes_for_the_first_time_costs_nothing(world):
    world.pins = Away(world.clock, times=1)
    world.handler(lambda _data, _context: None, name="reads nothing")
    assert isinstance(world.road().take(world.delivery(task="reads nothing")), Handled)


def test_what_a_publisher_said_is_not_asked_for(world):
    change(world)
    world.pins = Away(world.clock, times=9)
    message = world.message(**{names.CONFIG_PINS: '{"pricing": "1"}'})
    assert isinstance(world.road().take(world.delivery(message)), Handled)
    assert world.read == [1]


def test_a_store_that_is_away_is_a_failure_that_passes(world):
    world.pins = Away(world.clock, times=1)
    assert isinstance(world.road().take(world.delivery()), Retried)
    assert world.read == []


def test_what_died_waits_until_it_is_known_what_it_read(world):
    world.pins = Away(world.clock, times=0)
    world.pins.keep(world.delivery().key, {"pricing": "1"})
    world.died(1)
    world.pins.times = 3
    change(world)
    world.road().take(world.delivery())
    assert (world.read, world.pins.times) == ([1], 0)


@pytest.mark.parametrize(
    "said", ["[]", "{", '{"pricing": 1}', '{"pricing": null}', "[" * 5000, 7, '{"x": {"y": 1}}']
)
def test_pins_that_a_queue_made_up_break_nothing(world, said):
    outcome = world.road().take(world.delivery(world.message(**{names.CONFIG_PINS: said})))
    assert isinstance(outcome, Handled | DeadLettered)


@pytest.mark.parametrize("said", ["not json", "[]", "{", "5", "[" * 5000, 5, {"pricing": "1"}])
def test_pins_that_cannot_be_read_are_an_error_and_no_version_stands_in(world, said):
    outcome = world.road().take(world.delivery(world.message(**{names.CONFIG_PINS: said})))
    assert isinstance(outcome, DeadLettered)
    assert (outcome.letter.error_code, world.read) == ("CONFIGURATION", [])
    assert outcome.letter.error_message == (
        "the header angzarr-config-pins of event e1 is not a JSON object of configurations and"
        " versions: correct its publisher and publish it again"
    )


def test_pins_that_cannot_be_read_concern_none_who_reads_no_configuration(world):
    world.handler(lambda _data, _context: None, name="reads none")
    message = world.message(task="reads none", **{names.CONFIG_PINS: "not json"})
    assert isinstance(world.road().take(world.delivery(message)), Handled)


def test_an_event_has_a_bounded_number_of_pins(world):
    def read_all(_data, context):
        for number in range(MOST_PINS + 1):
            world.configurations.put(draft(f"c{number}"))
            context.config(f"c{number}")

    world.handler(read_all, name="reads all")
    outcome = world.road().take(world.delivery(task="reads all"))
    assert isinstance(outcome, DeadLettered)
    assert "is pinned to 100 configurations already" in outcome.letter.error_message


def test_two_who_read_first_at_once_see_one_version(world):
    """The second process thinks that another version is current; the first one's pin holds."""
    first, second = world.delivery(), world.delivery()
    assert world.road().configuration.of(first).read("pricing").value == 1
    world.configurations.put(draft("pricing", "2"))
    world.reader = ConfigurationReader(world.configurations, world.clock)
    assert world.road().configuration.of(second).read("pricing").value == 1


def test_a_context_of_no_app_says_so(world):
    context = Context(delivery=world.delivery(), make_policy=None, make_log=None)
    with pytest.raises(ConfigurationError, match="does not belong to an app"):
        context.config("pricing")
