"""What another system wrote without an error: archived with its alert, whole on every way out."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from tests.unit.analysis.alerted import FakeJobs
from tests.unit.analysis.alerts.test_alert_raiser import Site
from tests.unit.analysis.worker.test_worker import World

from angzarr.adapters.memory.dead_letters import MemoryDeadLetterQueue
from angzarr.analysis.alerts.alert import AlertKind
from angzarr.analysis.alerts.alert_state import AlertRules
from angzarr.analysis.ledger.entry import Status
from angzarr.analysis.ledger.export import entry_detail_json, letter_lines
from angzarr.dead_letters.codec import from_line
from angzarr.dead_letters.foreign_replay import RecordRoute
from angzarr.dead_letters.protection import Clearance
from angzarr.dead_letters.queue import RawLetter, Receipt
from angzarr.dead_letters.record import ForeignRecord
from angzarr.dead_letters.transfer import carry_into

EVENT = {"specversion": "1.0", "type": "order.placed", "id": "e-1", "source": "/shop"}
CHANGE = {
    "op": "u",
    "before": {"n": 1},
    "after": {"n": 2},
    "source": {"connector": "postgresql", "db": "shop", "schema": "public", "table": "order"},
}
BARE = [
    (json.dumps({**EVENT, "data": {"n": 1}}), "application/cloudevents+json", (), "order.placed"),
    ('{"n": 1}', "application/json", tuple((f"ce_{name}", text.encode()) for name, text
                                           in EVENT.items()), "order.placed"),
    (json.dumps(CHANGE), "application/json", (), "shop.public.order updated"),
    (json.dumps({"schema": {}, "payload": CHANGE}), "", (("h", b"\xff"),),
     "shop.public.order updated"),
]  # fmt: skip


@pytest.fixture(params=BARE, ids=["structured", "binary", "change", "change-with-schema"])
def bare(request):
    """A receipt of such a record, and the event type that it has."""
    raw, content_type, headers, event_type = request.param
    record = ForeignRecord(
        broker="kafka", place={"topic": "angzarr-dlq-order", "partition": 2, "offset": 9},
        is_unique=True, key=b"\x00k", headers=(*headers, ("h", b"1"), ("h", b"2")),
        properties={"timestamp": 1_700_000_000_000},
    )  # fmt: skip
    receipt = Receipt(
        domain="order", letter=None, raw=raw.encode(), content_type=content_type,
        problem="it is not a letter", record=record,
    )  # fmt: skip
    return receipt, event_type


def carries(receipt):
    return receipt.domain, receipt.raw, receipt.content_type, receipt.record


def test_it_is_archived_with_an_alert_and_whole_wherever_it_goes(bare):
    receipt, event_type = bare
    world, site = World(), Site()
    site.clock, site.groups, site.ledger, site.jobs = (
        world.clock, world.ledger, world.ledger, FakeJobs(),
    )  # fmt: skip
    alerting = site.worker(rules=AlertRules())
    world.queue.waiting.append(receipt)
    world.worker.step()
    (entry,) = world.ledger.get_failed_events(status=Status.ARCHIVED).entries
    assert entry.event_type == event_type
    assert AlertKind.DEAD_LETTER in {alert.kind for alert in alerting.look()}

    shown = entry_detail_json(world.ledger.open(entry.id), {})["message"]["record"]
    assert shown["headers"][-2:] == [["h", "1"], ["h", "2"]]
    assert shown["place"] == receipt.record.place

    (line,) = letter_lines(world.ledger, [entry])
    exported = from_line(line)
    assert carries(exported) == carries(receipt)

    elsewhere = MemoryDeadLetterQueue("bare")
    assert carry_into(elsewhere)([exported]) == [None]
    (moved,) = elsewhere.receive(["order"], limit=2, wait=timedelta())
    elsewhere.done([moved])
    assert carries(moved) == carries(receipt)

    routes = {"order": {"*": RecordRoute("shop.any", "any")}}
    given = RawLetter(
        domain=moved.domain, raw=moved.raw, content_type=moved.content_type, record=moved.record
    )
    letter = Clearance(routes=routes).record(given)
    told = json.loads(letter.message.body)[0][0]
    assert told["pages"][0]["data"] == json.loads(receipt.raw)
    assert told["record"] == {**receipt.record.as_json(), "content_type": receipt.content_type}
