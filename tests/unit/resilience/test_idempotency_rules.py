from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from hypothesis import assume, given
from hypothesis import strategies as st

from angzarr.resilience.idempotency import (
    AlreadyCompleted,
    AlreadyFailed,
    Claim,
    Claimed,
    Complete,
    Conflict,
    Fail,
    InProgress,
    Position,
    Release,
    SupersededClaim,
    Wait,
)
from angzarr.resilience.idempotency_rules import (
    ClaimStatus,
    Record,
    answer_of,
    ended,
    held_by,
    holds,
    life_after,
    was_ended,
)

positions = st.builds(Position, st.integers(0, 3), st.integers(0, 3))
prints = st.sampled_from(["", "x", "y"])
claims = st.builds(
    Claim,
    key=st.just("k"),
    token=st.sampled_from(["t1", "t2", "t3"]),
    owner=st.sampled_from(["o1", "o2"]),
    position=positions,
    fingerprint=prints,
)


def records_in(*statuses: ClaimStatus) -> st.SearchStrategy[Record]:
    return st.builds(
        Record,
        status=st.sampled_from(statuses),
        token=st.sampled_from(["t1", "t2", "t3"]),
        owner=st.sampled_from(["o1", "o2"]),
        position=positions,
        starts=st.integers(1, 5),
        fingerprint=prints,
        result=st.none() | st.just("{}"),
    )


records = records_in(*ClaimStatus)
pending = records_in(ClaimStatus.PENDING)
endings = st.one_of(
    st.builds(Complete, result=st.none() | st.just("1")),
    st.builds(Fail),
    st.builds(Wait, position=positions),
    st.builds(Release, counted=st.booleans()),
)


def dead(_: str) -> bool:
    return False


def alive(_: str) -> bool:
    return True


def never_asked(owner: str) -> bool:
    raise AssertionError(owner)


def test_unknown_key_is_claimed_with_its_first_start() -> None:
    claim = Claim(key="k", token="t", owner="o", fingerprint="x")
    assert answer_of(None, claim, never_asked) == Claimed(starts=1)
    assert held_by(claim, 1, None) == Record(
        status=ClaimStatus.PENDING, token="t", owner="o", fingerprint="x"
    )


@given(records_in(ClaimStatus.COMPLETED), claims)
def test_completed_is_never_claimed(record, claim) -> None:
    answer = answer_of(record, claim, never_asked)
    assert answer in (AlreadyCompleted(result=record.result), Conflict())


@given(records_in(ClaimStatus.FAILED), claims)
def test_failed_is_claimed_by_a_higher_replay_and_nothing_else(record, claim) -> None:
    answer = answer_of(record, claim, never_asked)
    if claim.position.replay > record.position.replay:
        assert answer == Claimed(starts=1)
    else:
        assert answer in (AlreadyFailed(error=record.result or "{}"), Conflict())


@given(records_in(ClaimStatus.PENDING, ClaimStatus.WAITING, ClaimStatus.RELEASED), claims)
def test_open_record_supersedes_every_earlier_position(record, claim) -> None:
    answer = answer_of(record, claim, dead)
    if claim.position < record.position:
        assert answer in (SupersededClaim(), Conflict())
    else:
        assert answer != SupersededClaim()


@given(records, claims)
def test_another_body_is_a_conflict_whatever_became_of_the_first(record, claim) -> None:
    claim = replace(claim, position=record.position, fingerprint="this")
    record = replace(record, fingerprint="that")
    assert answer_of(record, claim, dead) == Conflict()


@given(records, claims)
def test_bodies_are_compared_within_one_replay_only(record, claim) -> None:
    assume(claim.position.replay != record.position.replay)
    assert answer_of(record, claim, dead) != Conflict()


@given(pending, claims)
def test_only_a_dead_owner_of_another_token_is_taken_over(record, claim) -> None:
    claim = replace(claim, position=record.position, fingerprint="")
    if claim.token == record.token:
        starts, answer = record.starts, answer_of(record, claim, never_asked)
    else:
        assert answer_of(record, claim, alive) == InProgress()
        starts, answer = record.starts + 1, answer_of(record, claim, dead)
    assert answer == Claimed(starts=starts, last_words=record.result or "")


@given(records, claims)
def test_granted_claim_holds_and_fences_the_one_before(record, claim) -> None:
    answer = answer_of(record, claim, dead)
    assume(isinstance(answer, Claimed))
    after = held_by(claim, answer.starts, record)
    assert holds(after, claim.token)
    assert after.position >= record.position
    assert (after.result or "") == answer.last_words
    if claim.token != record.token:
        assert not holds(after, record.token)


@given(records, claims)
def test_granted_claim_is_granted_again_in_the_same_words(record, claim) -> None:
    answer = answer_of(record, claim, dead)
    assume(isinstance(answer, Claimed))
    after = held_by(claim, answer.starts, record)
    assert answer_of(after, claim, never_asked) == answer
    assert held_by(claim, answer.starts, after) == after


@given(pending, endings)
def test_ending_is_known_again_by_its_token_and_kind(record, ending) -> None:
    after = ended(record, ending)
    assert not holds(after, record.token)
    assert was_ended(after, record.token, ending)
    assert not was_ended(after, "another", ending)
    assert after.position >= record.position
    assert after.starts <= record.starts


@given(claims)
def test_claim_and_release_leave_the_count_of_starts_alone(claim) -> None:
    once = held_by(claim, 3, None)
    assert answer_of(ended(once, Release()), claim, never_asked) == Claimed(starts=3)
    counted = ended(once, Release(counted=True))
    assert answer_of(counted, claim, never_asked) == Claimed(starts=4)


def test_lives_count_from_the_ending() -> None:
    day, hour = timedelta(hours=24), timedelta(hours=1)
    assert life_after(Complete(), hour) == day
    assert life_after(Fail(), hour) == day
    assert life_after(Wait(position=Position(0, 1), delay=hour), hour) == day + hour
    assert life_after(Release(), hour) == hour
