"""Uses of the fixtures as a type checker must accept them: read by mypy, never run."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, assert_type

from pydantic import BaseModel

from angzarr import Aggregate, Angzarr
from angzarr.analysis.ledger.entry import Entry
from angzarr.facts.fact import Fact
from angzarr.testing import (
    Aws,
    DeadLetters,
    FactsSeen,
    FakeClock,
    InProcessWorker,
    LedgerInTest,
    Letter,
    NotSettled,
    Settled,
    WaitingMessage,
    given,
)


class Placed(BaseModel):
    order_id: str


class Account(Aggregate[Placed]):
    """Any."""


def test_handlers(
    angzarr_app: Angzarr,
    angzarr_worker: InProcessWorker,
    dead_letters: DeadLetters,
    ledger: LedgerInTest,
    facts: FactsSeen,
    fake_clock: FakeClock,
    aws: Aws,
) -> None:
    angzarr_app.publish(Placed(order_id="o-1"))
    assert_type(angzarr_worker.publish(Placed(order_id="o-1"), id="e-1"), list[Settled])
    assert_type(angzarr_worker.run_until_settled(within=timedelta(hours=1)), list[Settled])
    assert_type(angzarr_worker.waits("e-1"), list[timedelta])
    assert_type(angzarr_worker.waiting, list[WaitingMessage])
    assert_type(dead_letters.only(reason="refused"), Letter)
    assert_type(dead_letters[0], Letter)
    assert_type(ledger.replay(ledger.only()), Entry)
    assert_type(facts.where(subtype="handled"), list[Fact])
    fake_clock.advance(hours=1)
    assert_type(aws.dlq, dict[str, Any])
    given(Account, Placed(order_id="o-1")).when(Placed(order_id="o-2")).then()
    assert issubclass(NotSettled, AssertionError)
