"""What is shown of text that came from outside."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from angzarr.runtime.text import escaped, printable


@given(st.text())
def test_it_is_one_line_that_nothing_acts_on(text):
    assert printable(text).isprintable()
    assert len(printable(text)) == len(text)


@given(st.text(), st.sampled_from(["\n", "\n\t", "\x1b"]))
def test_only_what_is_to_stay_stays(text, keep):
    for shown, given_ in zip(printable(text, keep=keep), text, strict=True):
        assert (shown == given_) == (given_.isprintable() or given_ in keep or given_ == "\ufffd")


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_whose_characters_all_show_says_the_same(value):
    shown = escaped(json.dumps(value, ensure_ascii=False, indent=1))
    assert all(one.isprintable() or one == "\n" for one in shown)
    assert json.loads(shown) == value
