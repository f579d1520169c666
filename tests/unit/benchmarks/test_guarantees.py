"""A run counts only if it shows that the guarantees were on."""

from __future__ import annotations

import json
from fnmatch import fnmatch

import pytest
from harness import guarantees
from harness.drain import DrainFailed
from harness.servers import Store

STORE = Store("redis://nowhere", "bench")
FACT = "{'outcome': 'handled'}\n"


class Kept:
    """As much of a Redis as the checks ask for: hashes are dicts, all else is text."""

    def __init__(self, keys):
        self._keys, self._found = keys, []

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        pass

    def pipeline(self, **_options):
        return self

    def scan_iter(self, pattern, **_options):
        found = [key for key in self._keys if fnmatch(key, pattern)]
        return found + found[:1]  # as Redis may

    def hget(self, key, field):
        self._found.append(self._keys[key].get(field))

    def get(self, key):
        self._found.append(self._keys.get(key))
        return self._keys.get(key)

    def execute(self):
        found, self._found = self._found, []
        return found


@pytest.fixture
def kept(monkeypatch):
    """Say what the store keeps."""

    def keep(keys):
        monkeypatch.setattr(guarantees.redis.Redis, "from_url", lambda *_a, **_o: Kept(keys))

    return keep


def ours(*statuses):
    return {f"bench:idempotency:{n}": {"status": status} for n, status in enumerate(statuses)}


def theirs(*statuses, breaker="closed"):
    records = enumerate(statuses)
    kept = {f"bench:handle#{n}": json.dumps({"status": status}) for n, status in records}
    return {**kept, "bench:pybreaker:state": breaker}


def test_every_event_needs_its_record_and_its_fact(kept):
    kept(ours("completed", "completed"))
    guarantees.expect_all(STORE, FACT * 2, 2)
    with pytest.raises(DrainFailed, match="1 of 2 events have their fact"):
        guarantees.expect_all(STORE, FACT, 2)
    kept(ours("completed", "pending"))
    with pytest.raises(DrainFailed, match="1 of 2 events have a completed record"):
        guarantees.expect_all(STORE, FACT * 2, 2)


def test_a_side_without_the_fact_log_must_have_no_fact(kept):
    kept(ours("completed", "completed"))
    guarantees.expect_all(STORE, "", 2, facts=0)
    with pytest.raises(DrainFailed, match="their fact"):
        guarantees.expect_all(STORE, FACT, 2, facts=0)


def test_what_is_built_by_hand_must_have_kept_its_records_and_its_breaker(kept):
    kept(theirs("COMPLETED", "COMPLETED"))
    guarantees.expect_handbuilt(STORE, 2)
    kept(theirs("COMPLETED", "INPROGRESS"))
    with pytest.raises(DrainFailed, match="1 of 2 events have a completed record"):
        guarantees.expect_handbuilt(STORE, 2)
    kept(theirs("COMPLETED", breaker=None))
    with pytest.raises(DrainFailed, match="breaker"):
        guarantees.expect_handbuilt(STORE, 1)
