"""The probes of several processes as one."""

from __future__ import annotations

from angzarr.supervisor.pool_health import SETTLED_WITHIN, PoolHealth


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def health_of(wanted=2, none_for=60.0):
    clock = Clock()
    health = PoolHealth(clock)
    health.watch(lambda: wanted, none_for)
    return health, clock


def words(*, holds=True, says="it runs"):
    return {"conditions": {"ready": [["lease", holds, says]], "live": []}}


def test_it_is_ready_while_every_process_is():
    health, _ = health_of()
    health.say(1, words())
    health.say(2, words())
    assert health.ready().holds
    health.say(2, words(holds=False, says="it may have ended"))
    report = health.ready()
    assert not report.holds
    (lease,) = [one for one in report.conditions if one.name == "lease"]
    assert lease.says == "process 2: it may have ended"


def test_a_process_that_is_replaced_soon_leaves_it_ready():
    health, clock = health_of()
    health.say(1, words())
    health.say(2, words())
    health.end(2)
    clock.now = SETTLED_WITHIN
    assert health.ready().holds
    clock.now = SETTLED_WITHIN + 1
    assert not health.ready().holds
    health.say(3, words())
    assert health.ready().holds


def test_it_is_not_ready_before_any_process_is():
    health, _ = health_of()
    assert not health.ready().holds


def test_it_lives_while_any_process_is_up_or_was_not_long_ago():
    health, clock = health_of(none_for=60.0)
    health.say(1, words())
    clock.now = 100.0
    health.pulse.beat()
    assert health.live().holds
    health.end(1)
    clock.now = 160.0
    health.pulse.beat()
    assert health.live().holds
    clock.now = 161.0
    health.pulse.beat()
    assert not health.live().holds
    health.stopping = True
    assert health.live().holds
    assert not health.ready().holds


def test_a_supervisor_whose_loop_hangs_does_not_live():
    health, clock = health_of()
    health.say(1, words())
    clock.now = 31.0
    assert not health.live().holds


def test_words_without_conditions_change_nothing():
    health, _ = health_of()
    health.say(1, {"draining": "why"})
    health.say(1, {"conditions": 7})
    assert not health.ready().holds
