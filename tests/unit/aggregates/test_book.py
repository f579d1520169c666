"""Which addresses can be kept, and how the events of a book are numbered (C1)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.aggregates.book import MAX_KEY_LENGTH, Address, check_address, numbered
from angzarr.errors import InvalidDomainName, InvalidRoot
from angzarr.events.event import Event

printable = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=255)


@given(printable, st.just("") | printable)
def test_printable_roots_and_editions_are_kept_as_they_are(root, edition):
    address = Address("account", root, edition)
    assert check_address(address) is address


@pytest.mark.parametrize("text", ["\x00", "a\nb", "\ud800", "\u2028", "\u202e", "\x7f", "x" * 256])
def test_roots_and_editions_that_no_store_keeps_are_refused(text):
    with pytest.raises(InvalidRoot, match=f"root .*1 to {MAX_KEY_LENGTH} printable"):
        check_address(Address("account", text))
    with pytest.raises(InvalidRoot, match="edition"):
        check_address(Address("account", "a", text))


def test_a_root_is_told_shortly_and_safely():
    with pytest.raises(InvalidRoot) as caught:
        check_address(Address("account", "\x1b[31m" * 10_000))
    assert len(str(caught.value)) < 400
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize("domain", ["", "No", "a b", "x" * 65])
def test_a_domain_that_cannot_be_is_refused(domain):
    with pytest.raises(InvalidDomainName):
        check_address(Address(domain, "a"))


@pytest.mark.parametrize(
    ("address", "text"),
    [
        (Address("account", "a"), "account/a"),
        (Address("account", "a", "what-if"), "account/a@what-if"),
    ],
)
def test_an_address_is_written_for_people(address, text):
    assert str(address) == text


@given(st.integers(0, 5), st.integers(0, 1000), st.sampled_from(["", "what-if"]))
def test_events_are_numbered_in_order_and_otherwise_kept(count, first, edition):
    events = [Event(id=str(index), type="T", data=index, depth=index) for index in range(count)]
    pages = numbered(events, Address("account", "a", edition), first)
    assert [page.sequence for page in pages] == list(range(first, first + count))
    assert {(page.domain, page.root, page.edition) for page in pages} <= {
        ("account", "a", edition or None)
    }
    bare = [replace(p, domain=None, root=None, edition=None, sequence=None) for p in pages]
    assert bare == events
