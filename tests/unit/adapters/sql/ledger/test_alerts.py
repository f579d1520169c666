from __future__ import annotations

import json
from dataclasses import replace

from tests.contracts.alerts import watch_of
from tests.hand_clock import START
from tests.unit.analysis.alerted import HOUR

from angzarr.adapters.sql.ledger.alerts import watch_from, watch_text


def test_a_watch_is_read_as_it_was_written():
    watch = watch_of(told_to=START, looked_to=START + HOUR, revision=3)
    assert watch_from(watch.subject, watch_text(watch), 3) == watch


def test_of_a_watch_of_an_older_release_the_entries_it_counted_are_taken_for_looked_into():
    watch = watch_of()
    older = json.loads(watch_text(watch))
    del older["told_to"], older["looked_to"]
    read = watch_from(watch.subject, json.dumps(older), 1)
    assert read == replace(watch, looked_to=watch.samples[-1].at)
    unseen = json.dumps(older | {"samples": []})
    assert watch_from(watch.subject, unseen, 1).looked_to is None
