from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.ledger import letter_of
from tests.unit.analysis.worker.test_worker import World

from angzarr.analysis.classification.grouping import PARTS, Grouping, grouping_rules
from angzarr.dead_letters.metadata import WORKER_FINGERPRINT
from angzarr.errors import ConfigurationError

DEADLOCKS = {"when": {"error_type": "*.DeadlockDetected"}, "by": ["handler", "error_type"]}
QUOTA = {"when": {"message": "*quota*"}, "by": [], "as": "quota"}


def grouping(*rules, **options):
    return Grouping(rules=grouping_rules(rules, "test"), **options)


def deadlock(**fields):
    return letter_of(
        error_type="psycopg.errors.DeadlockDetected", fingerprint="of the worker", **fields
    )


def test_letters_are_one_group_if_they_agree_in_the_parts_named():
    group = grouping(DEADLOCKS)
    one, other = deadlock(error_message="on orders"), deadlock(error_message="on customers")
    assert group(one).fingerprint == group(other).fingerprint
    assert group(one).fingerprint != group(deadlock(handler="mail.send")).fingerprint


def test_what_the_worker_called_it_stays_in_the_letter():
    letter = grouping(DEADLOCKS)(deadlock())
    assert letter.metadata[WORKER_FINGERPRINT] == "of the worker"
    assert grouping(DEADLOCKS)(letter) == letter


def test_a_group_that_is_told_by_nothing_is_never_split():
    group = grouping(QUOTA)
    groups = {
        group(
            letter_of(handler=handler, error_type=kind, error_message=f"{kind}: quota")
        ).fingerprint
        for handler in ("a", "b")
        for kind in ("x.Spent", "y.Over")
    }
    assert len(groups) == 1


def test_a_letter_of_which_no_rule_speaks_stays_as_it_is():
    letter = letter_of(fingerprint="of the worker")
    assert grouping(DEADLOCKS, QUOTA)(letter) is letter


def test_the_first_rule_that_speaks_decides():
    both = deadlock(error_message="quota")
    assert grouping(DEADLOCKS, QUOTA)(both).fingerprint == grouping(DEADLOCKS)(both).fingerprint
    assert grouping(QUOTA, DEADLOCKS)(both).fingerprint == grouping(QUOTA)(both).fingerprint


def test_packages_named_as_the_application_regroup_what_no_rule_does():
    stack = (
        'File "/venv/lib/python3.11/site-packages/shop/orders.py", line 3, in sync\n'
        'File "/venv/lib/python3.11/site-packages/{client}.py", line 9, in post\n'
    )
    one, other = (letter_of(error_stack=stack.format(client=name)) for name in ("httpx", "aiohttp"))
    group = Grouping(in_app=("shop",))
    assert group(one).fingerprint == group(other).fingerprint
    in_rule = grouping({"when": {"handler": "orders.*"}, "by": ["stack"], "in_app": ["shop"]})
    assert in_rule(one).fingerprint == in_rule(other).fingerprint


@given(st.sets(st.sampled_from(sorted(PARTS)), min_size=1), st.text(), st.text())
def test_the_same_letter_has_the_same_group_and_any_part_can_tell(parts, message, stack):
    group = grouping({"when": {"handler": "*"}, "by": sorted(parts)})
    letter = letter_of(error_message=message, error_stack=stack, event=None)
    assert group(letter).fingerprint == group(letter).fingerprint


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("x", "must say by what"),
        ({"when": {"handler": "x"}}, "must say by what"),
        ({"by": ["handler"]}, "lists at least one condition"),
        ({"when": {"dependency": "ill"}, "by": ["handler"]}, "dependency may change"),
        ({"when": {"handler": "x"}, "by": ["weather"]}, "by has no weather; there are handler"),
        ({"when": {"handler": "x"}, "by": "handler"}, "by is a list of texts"),
        ({"when": {"handler": "x"}, "by": []}, "needs a name, such as as: quota"),
        ({"when": {"handler": "x"}, "by": [], "as": 3}, "as is a text"),
        ({"when": {"handler": "x"}, "by": ["stack"], "in_app": [3]}, "in_app is a list of texts"),
        ({"when": {"handler": "x"}, "by": ["stack"], "name": "y"}, "has no name; there are as, by"),
    ],
)
def test_a_grouping_rule_that_cannot_be_is_refused_in_one_sentence(rule, said):
    with pytest.raises(ConfigurationError, match=said) as refused:
        grouping(rule)
    assert str(refused.value).startswith("test[0]")


def test_entries_are_filed_under_the_groups_of_the_rules():
    world = World()
    intake = world.worker.duties[0]
    intake.group = grouping(DEADLOCKS)
    world.queue.send(deadlock())
    world.worker.step()
    assert world.entry.fingerprint == grouping(DEADLOCKS)(deadlock()).fingerprint
    kept = world.ledger.open(world.entry.id)
    assert kept.context[WORKER_FINGERPRINT] == "of the worker"
