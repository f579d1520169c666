"""The header by which a message says where its body lies, and what is read of any other."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.errors import DecodeError
from angzarr.events.headers import is_ours
from angzarr.payloads.claim_check import (
    HEADER,
    ClaimCheck,
    check_in,
    fingerprint_in,
    without_check,
    write_check,
)
from angzarr.payloads.store import PayloadReference, StorageKind

CHECK = ClaimCheck(
    reference=PayloadReference(
        kind=StorageKind.S3, uri="s3://bucket/ab/cd", sha256="ab" * 32, size=7,
        encoding="zstd", unpacked_size=70, unpacked_sha256="ef" * 32,
    ),
    digest="cd" * 32,
    follows=True,
)  # fmt: skip
SOUND = json.loads(write_check(CHECK))

checks = st.builds(
    ClaimCheck,
    reference=st.builds(
        PayloadReference,
        kind=st.sampled_from(StorageKind),
        uri=st.text(min_size=1, max_size=300),
        sha256=st.binary(min_size=32, max_size=32).map(bytes.hex),
        size=st.integers(0, 2**53),
        encoding=st.just("zstd"),
        unpacked_size=st.integers(0, 2**53),
        unpacked_sha256=st.binary(min_size=32, max_size=32).map(bytes.hex),
    ),
    digest=st.binary(min_size=32, max_size=32).map(bytes.hex),
    follows=st.booleans(),
)


@given(checks)
def test_a_header_is_read_as_it_was_written(check):
    assert check_in({HEADER: write_check(check)}) == check


def test_a_message_that_has_its_body_says_nothing():
    assert check_in({}) is None
    assert fingerprint_in({"task": "t"}) is None


@given(st.one_of(st.text(), st.integers(), st.none(), st.lists(st.text())))
def test_any_other_header_is_one_sentence(said):
    headers = {HEADER: said}
    if said is None:
        assert check_in(headers) is None
        return
    with pytest.raises(DecodeError, match="does not say where its body lies"):
        check_in(headers)
    assert fingerprint_in(headers) is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=70),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
)


@given(st.sampled_from(sorted(SOUND)), json_values)
def test_a_field_of_another_type_is_a_sentence_or_read_within_bounds(field, value):
    try:
        check = check_in({HEADER: json.dumps({**SOUND, field: value})})
    except DecodeError:
        return
    assert check is not None
    assert 0 <= check.reference.size <= 2**53
    assert len(check.reference.sha256) == len(check.digest) == 64


def test_a_long_header_is_not_parsed():
    with pytest.raises(DecodeError, match="not a short text"):
        check_in({HEADER: json.dumps({**SOUND, "uri": "s3://" + "x" * 5000})})


def test_no_user_can_set_it_or_hand_it_on():
    assert is_ours(HEADER)
    assert without_check({HEADER: "x", "a": 1, "compression": "gzip"}) == {"a": 1}
    kept = {"a": 1}
    assert without_check(kept) is kept
