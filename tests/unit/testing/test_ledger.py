from __future__ import annotations

import pytest
from tests.unit.testing import shop
from tests.unit.testing.shop import Placed, fails

from angzarr import GiveUp
from angzarr.analysis.ledger.entry import FailureClass, Status


def test_a_letter_is_classified_and_replayed_once_its_cause_is_mended(
    angzarr_worker, dead_letters, ledger
):
    shop.says.append(fails(KeyError("a bug")))
    angzarr_worker.publish(Placed(order_id="o-1"), id="e-1")
    (entry,) = ledger.analyse()
    assert (entry.event_id, entry.status) == ("e-1", Status.HELD)
    assert entry.failure_class == FailureClass.CODE_DEFECT
    shop.says[:] = [lambda: None]
    assert ledger.replay(entry).status == Status.RESOLVED
    assert shop.asked[-1] == "o-1"
    assert len(dead_letters) == 1


def test_what_the_analysis_replays_by_itself_is_replayed_at_its_time(angzarr_worker, ledger):
    refused = fails(ConnectionError("nobody there"))
    shop.says[:] = [refused] * 4 + [lambda: None]
    angzarr_worker.publish(Placed(order_id="o-1"), id="e-1")
    ledger.run_until_settled()
    entry = ledger.only(event_id="e-1")
    assert (entry.status, entry.replays) == (Status.RESOLVED, 1)


def test_what_cannot_be_replayed_says_why(angzarr_worker, ledger):
    shop.says.append(fails(GiveUp("no")))
    angzarr_worker.publish(Placed(order_id="o-1"), id="e-1")
    (entry,) = ledger.analyse()
    shop.says[:] = [lambda: None]
    done = ledger.replay(entry)
    with pytest.raises(AssertionError, match=r"is not replayed: the entry is resolved"):
        ledger.replay(done)


def test_an_entry_is_found_or_the_failure_lists_all(angzarr_worker, ledger):
    with pytest.raises(AssertionError, match="0 entries, not one entry"):
        ledger.only()
    with pytest.raises(TypeError, match="Entry has no field 'state'"):
        ledger.where(state="held")
    shop.says.append(fails(GiveUp("no")))
    angzarr_worker.publish(Placed(order_id="o-1"), id="e-1")
    ledger.analyse()
    with pytest.raises(AssertionError, match=r"<shop\.charge of 'e-1': "):
        ledger.only(event_id="e-2")
