from __future__ import annotations

from collections import Counter

import pytest
from harness.redis_counters import Counts, by_name, sender


def test_the_request_that_counts_is_not_counted():
    before = Counts.of({"total_reads_processed": 10, "total_commands_processed": 20, "x": 1})
    after = Counts.of({"total_reads_processed": 14, "total_commands_processed": 31})
    assert after.since(before) == Counts(round_trips=3, commands=10)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('1339518083.107412 [0 127.0.0.1:60866] "keys" "*"', ("client", "KEYS")),
        ('1339518083.107412 [3 lua] "HSET" "a" "b" "[0 1.2.3.4:5] \\"DEL\\""', ("script", "HSET")),
        ("OK", None),
    ],
)
def test_a_command_is_told_with_its_sender(line, said):
    assert sender(line) == said


def test_commands_are_told_per_unit_and_the_rare_ones_only_in_the_sum():
    found = Counter({("client", "EVALSHA"): 500, ("client", "INFO"): 1, ("script", "HSET"): 1000})
    assert by_name(found, "client", 1000) == {"all": 0.5, "EVALSHA": 0.5}
    assert by_name(found, "script", 1000) == {"all": 1.0, "HSET": 1.0}
    assert by_name(Counter(), "script", 1000) == {"all": 0}
