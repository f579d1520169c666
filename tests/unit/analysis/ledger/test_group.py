from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.analysis.ledger.group import fingerprint_at, group_address


@given(st.text(st.characters(exclude_categories=()), max_size=60))
def test_every_fingerprint_is_found_again_by_its_address(fingerprint):
    address = group_address(fingerprint)
    assert fingerprint_at(address) == fingerprint
    assert address.isascii()
    assert address.isprintable()
    assert not set(address) & set("/?#%& \"'<>[]\\$`;")
    assert not address.startswith("-")
    assert address.strip(".")


@pytest.mark.parametrize("fingerprint", ["d2dfb1c0ffee0001", "quota", "a.b_c:d-e", "x" * 64])
def test_a_plain_fingerprint_is_its_own_address(fingerprint):
    assert group_address(fingerprint) == fingerprint


@pytest.mark.parametrize("fingerprint", ["", ".", "..", "-x", "a/b", "a b", "~x", "x" * 65, "é"])
def test_what_an_address_or_a_command_would_read_otherwise_is_spelt(fingerprint):
    assert group_address(fingerprint).startswith("~")


@pytest.mark.parametrize("address", ["~!", "~a", "~é", "~____"])
def test_what_is_spelt_wrong_is_a_value_error(address):
    with pytest.raises(ValueError, match="~ and base64"):
        fingerprint_at(address)
