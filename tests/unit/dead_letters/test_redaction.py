"""What a pattern names is nowhere in the letter; what none names is unchanged."""

from __future__ import annotations

import json
import string
from collections import OrderedDict
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.dead_letters import masking
from angzarr.dead_letters.codec import Form, encode
from angzarr.dead_letters.letter import DeadLetter, Reason
from angzarr.dead_letters.masking import ALL_HIDDEN, MARK, compiled
from angzarr.dead_letters.redaction import Redaction, after, hides, is_named, parse, start
from angzarr.delivery.delivery import data_of
from angzarr.events import headers as names
from angzarr.events.event import Event, Message

NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
EMBED = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}

words = st.text(alphabet=string.ascii_lowercase + "é\"'\\ ", max_size=8)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | words
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
#: Found in nothing else that these tests make.
secrets = st.text(alphabet=string.ascii_uppercase, min_size=12, max_size=12).flatmap(
    lambda core: st.sampled_from(
        [core, f'it\'s "{core}"\n', f"ü{core}", [core], {"a": {"b": core}}]
    )
)


def core_of(secret: Any) -> str:
    return "".join(c for c in json.dumps(secret, ensure_ascii=False) if c in string.ascii_uppercase)


def body_of(args: Any, kwargs: Any, embed: Any = None) -> bytes:
    return json.dumps([args, kwargs, embed or EMBED]).encode()


def letter(args: Any = ({"n": 1},), kwargs: Any = (), **fields: Any) -> DeadLetter:
    args, kwargs = list(args), dict(kwargs)
    headers = {
        "task": "shop.sync", "id": "t1", "argsrepr": repr(args), "kwargsrepr": repr(kwargs),
        **fields.pop("headers", {}),
    }  # fmt: skip
    message = Message(
        body=fields.pop("body", body_of(args, kwargs)),
        content_type=fields.pop("content_type", "application/json"),
        content_encoding="utf-8",
        headers=headers,
        queue="orders",
        properties=fields.pop("properties", {}),
    )
    known = {
        "id": "l1",
        "domain": "shop",
        "handler": "shop.sync",
        "reason": Reason.REFUSED,
        "explanation": "no",
        "message": message,
        "event": Event(id="e1", type="order.placed", data=data_of(args, kwargs)),
        "sent_to_dlq_at": NOW,
    }
    return DeadLetter(**(known | fields))


def written(one: DeadLetter) -> bytes:
    return b"".join(encode(one, form).body for form in Form)


@st.composite
def nested(draw: st.DrawFn, name: str, secret: Any) -> Any:
    """A tree in which *secret* stands under *name*, somewhere."""
    tree: Any = {**draw(st.dictionaries(words, trees, max_size=2)), name: secret}
    for _ in range(draw(st.integers(0, 3))):
        if draw(st.booleans()):
            tree = [*draw(st.lists(trees, max_size=2)), tree]
        else:
            tree = {**draw(st.dictionaries(words, trees, max_size=2)), draw(words): tree}
    return tree


@given(st.data(), secrets, st.sampled_from(["password", "PassWord"]))
def test_nothing_that_a_pattern_names_is_left_anywhere(data, secret, name):
    one = data.draw(nested(name, secret))
    place = data.draw(
        st.sampled_from(["event", "args", "kwargs", "embed", "headers", "properties"])
    )
    args, kwargs, embed, more = [{"n": 1}], {}, {}, {}
    if place == "event":
        args = [one]
    elif place == "args":
        args = [one, 2]
    elif place == "kwargs":
        kwargs = {"k": one}
    elif place == "embed":
        embed = {"chain": [{"task": "next", "args": [one]}]}
    else:
        more = {place: {"x": one}}
    text = f"refused {one!r} as {json.dumps(secret)}"
    found = letter(
        args, kwargs, body=body_of(args, kwargs, EMBED | embed), **more,
        explanation=f"last: {text}", error_message=text, error_stack=f"Traceback\n{text}\n{secret}",
        metadata={"note": text},
    )  # fmt: skip
    redaction = Redaction.of(["**.password"], [])
    shown = redaction(found)
    assert core_of(secret).encode() in written(found)
    assert core_of(secret).encode() not in written(shown)
    assert hides(shown)
    assert redaction(shown) == shown
    texts = redaction.of_texts(found)
    assert (texts.message, texts.event) == (found.message, found.event)
    assert core_of(secret) not in texts.explanation + texts.error_message + texts.error_stack


@given(trees, st.dictionaries(words, trees, max_size=3), st.text(max_size=30))
def test_what_no_pattern_names_is_unchanged_to_the_byte(event, headers, text):
    found = letter([event], headers=headers, error_message=text, metadata={"note": text})
    redaction = Redaction.of(["**.password", "headers.authorization"], [compiled("SECRET")])
    assert redaction(found) == found
    assert redaction.of_texts(found) == found


odd = st.recursive(
    scalars | st.binary(max_size=9) | st.just(object()) | st.dates() | st.decimals(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(scalars.filter(lambda key: key == key), inner, max_size=3)  # noqa: PLR0124 - not NaN
        | st.dictionaries(words, inner, max_size=3).map(OrderedDict)
    ),
    max_leaves=8,
)
some_patterns = st.lists(
    st.sampled_from(
        ["**", "*", "*.*", "event", "event.**", "args", "args.0", "kwargs", "embed", "headers.*",
         "properties", "metadata.*", "**.a", "event.kwargs", "metadata.error_message"]
    ),
    max_size=3,
)  # fmt: skip


@given(odd, odd, st.binary(max_size=30), st.booleans(), some_patterns, st.text(max_size=9))
def test_odd_letters_are_redacted_without_an_error_and_only_once(
    data, header, body, json_body, patterns, text
):
    found = letter(
        headers={"x": header}, properties={"y": header}, metadata={"redacted": text, "z": text},
        error_message=text, error_stack=text, explanation=text,
        **({} if json_body else {"body": body}),
    )  # fmt: skip
    found = replace(found, event=replace(found.event, data=data))
    redaction = Redaction.of(patterns, [compiled(r"\d+"), compiled("a?")])
    once = redaction(found)
    assert redaction(once) == once
    written(once)


def test_a_tree_that_holds_itself_or_is_too_deep_is_hidden():
    within: list[Any] = []
    within.append(within)
    deep: Any = "HUNTER2"
    for _ in range(5000):
        deep = {"a": deep}
    for data in (within, deep):
        found = letter(body=b"[" * 9000, event=Event(id="e1", type="t", data=data))
        shown = Redaction.of(["**.password"], [])(found)
        assert b"HUNTER2" not in written(shown)
        assert shown.message.body == f'"{MARK}"'.encode()


@pytest.mark.parametrize(
    ("patterns", "args", "kwargs", "left"),
    [
        (["event.card.no"], [{"card": {"no": 1, "n": 2}}], {}, [{"card": {"no": MARK, "n": 2}}]),
        (["args.0.card"], [{"card": 1}], {}, [{"card": MARK}]),
        (["*.card"], [{"card": 1}], {}, [{"card": MARK}]),
        (["event.args.1"], ["a", "b"], {}, ["a", MARK]),
        (["args.1"], ["a", "b"], {}, ["a", MARK]),
        (["args"], ["a", "b"], {}, [MARK, MARK]),
        (["event"], [{"a": 1}], {}, [MARK]),
        (["event.a.*.pin"], [{"a": [{"pin": 1}, {"pin": 2}]}], {}, [{"a": [{"pin": MARK}] * 2}]),
        (["kwargs.card"], [{"kwargs": {"card": 1}}], {}, [{"kwargs": {"card": 1}}]),
    ],
)  # fmt: skip
def test_a_path_means_the_same_in_the_body_and_in_its_view(patterns, args, kwargs, left):
    shown = Redaction.of(patterns, [])(letter(args, kwargs))
    body = json.loads(shown.message.body)
    assert body[0] == left
    assert shown.event.data == data_of(body[0], body[1])
    assert shown.event.data == data_of(left, kwargs)


def test_an_event_that_looks_like_arguments_is_one_where_the_body_says_so():
    one = {"args": [], "kwargs": {"card": 7}}
    shown = Redaction.of(["kwargs.card"], [])(letter([one]))
    assert shown.event.data == one
    assert not hides(shown)


def test_a_message_of_protocol_1_is_redacted_by_the_same_paths():
    body = {"task": "t", "args": [{"card": 1, "pin": 2}], "kwargs": {"pin": 3}, "password": 4}
    found = letter(body=json.dumps(body).encode(), event=None)
    shown = Redaction.of(["args.0.card", "**.pin", "event.password"], [])(found)
    assert json.loads(shown.message.body) == {
        "task": "t", "args": [{"card": MARK, "pin": MARK}], "kwargs": {"pin": MARK},
        "password": MARK,
    }  # fmt: skip
    assert shown.metadata["redacted"] == "4"


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b'[[{"password": "hunter2"', "application/json"),
        (b"\x80\x04pickle hunter2", "application/x-python-serialize"),
        (b'{"body": "W1t7InBhc3N3b3JkIjog", "headers": "hunter2"}', "application/octet-stream"),
        ("hunter2".encode("utf-16"), "application/json"),
    ],
)
def test_a_body_that_cannot_be_looked_into_is_hidden_whole(body, content_type):
    found = letter(body=body, content_type=content_type, event=None)
    shown = Redaction.of(["**.password"], [])(found)
    assert json.loads(shown.message.body) == MARK
    assert shown.metadata["redacted"] == "1"
    assert Redaction.of(["headers.x"], [])(found) == found


def test_a_value_that_a_second_one_of_its_name_hides_does_not_travel():
    body = b'[[{"card": {"number": "HUNTER2"}, "card": {}}], {}, {}]'
    shown = Redaction.of(["event.card.number"], [])(letter([{"card": {}}], body=body))
    assert b"HUNTER2" not in written(shown)
    assert not hides(shown)


def test_celerys_own_texts_of_the_arguments_go_with_the_first_hidden_value():
    found = letter([{"password": "x" * 40}], headers={"argsrepr": "[{'password': 'xxxxxxxxxxxx..."})
    headers = Redaction.of(["**.password"], [])(found).message.headers
    assert (headers["argsrepr"], headers["kwargsrepr"]) == (MARK, MARK)
    assert Redaction.of(["headers.x"], [])(found).message.headers == found.message.headers


def test_what_a_letter_is_known_by_is_never_hidden():
    known = {names.EVENT_ID: "e1", names.REPLAY: 1, names.LETTER_ID: "l0", names.QUEUE: "orders"}
    shown = Redaction.of(["**", "headers.*"], [])(letter(headers={**known, "x": "y"}))
    assert {name: shown.message.headers[name] for name in known} == known
    assert (shown.message.task, shown.message.id) == ("shop.sync", "t1")
    assert shown.message.headers["x"] == MARK


def test_headers_that_could_not_be_read_are_hidden_where_a_header_is():
    found = letter(headers={names.UNREAD: b"authorization: hunter2"})
    assert b"hunter2" not in written(Redaction.of(["headers.authorization"], [])(found))
    assert Redaction.of(["event.a"], [])(found) == found


def test_facts_that_travel_as_metadata_can_be_named():
    found = letter(error_message="no hunter2", explanation="refused: no hunter2", worker="host7")
    shown = Redaction.of(["metadata.error_message", "metadata.worker"], [])(found)
    assert (shown.error_message, shown.worker) == (MARK, MARK)
    assert shown.explanation == f"refused: {MARK}"
    assert not hides(shown), "a replay sends none of it"


def test_nothing_is_hidden_where_there_is_nothing():
    found = letter([{"password": None, "token": "", "pin": [], "key": {}}])
    assert Redaction.of(["event.*"], [])(found) == found


def test_a_letter_of_others_is_left_as_it_is():
    found = letter([{"password": "x"}], envelope=b"theirs")
    redaction = Redaction.of(["**"], [compiled(".")])
    assert redaction(found) is found
    assert redaction.of_texts(found) is found


def test_patterns_for_text_reach_every_text_and_no_payload():
    texts = dict.fromkeys(("explanation", "error_message", "error_stack"), "by Bearer abc!")
    found = letter([{"note": "Bearer abc"}], **texts, metadata={"note": "Bearer abc!"})
    shown = Redaction.of([], [compiled(r"Bearer \w+")])(found)
    assert {getattr(shown, name) for name in texts} == {f"by {MARK}!"}
    assert shown.metadata == {"note": f"{MARK}!"}
    assert shown.message == found.message


def test_a_payload_cannot_make_its_own_redaction_long():
    """Each of so many words at each of so many places would take minutes."""
    secrets = ["a" * length for length in range(4, 1000)]
    found = letter([{"password": secrets, "note": "a" * 4000}], error_message="a" * 4000)
    found = replace(found, error_stack="a" * 16_000)
    assert len(found.message.body) > 500_000
    shown = Redaction.of(["**.password"], [])(found)
    assert (shown.error_message, shown.error_stack) == (MARK, MARK)


def test_more_than_can_be_looked_for_hides_the_texts_whole(monkeypatch):
    monkeypatch.setattr(masking, "MOST_WORDS", 10)
    secrets = [f"secret-{number}" for number in range(11)]
    found = letter([{"password": secrets}], error_message=f"no {secrets[-1]}")
    once = Redaction.of(["**.password"], [])(found)
    assert once.error_message == ALL_HIDDEN
    assert Redaction.of(["**.password"], [compiled(r"\w+")])(once) == once


def test_names_in_a_removed_value_are_removed_from_texts_too():
    found = letter([{"tokens": {"tok_live_abcdef": "read", "id": [{"k1": {"secret_name": 1}}]}}])
    texts = replace(found, error_message="id k1: tok_live_abcdef has no secret_name")
    shown = Redaction.of(["event.tokens"], [])(texts)
    assert shown.error_message == f"id k1: {MARK} has no {MARK}"
    values = Redaction.of(["event.tokens.*"], [])(texts)
    assert "tok_live_abcdef has no" in values.error_message


def is_found(pattern: str, *steps: object) -> bool:
    rests = start([pattern])
    for step in steps:
        rests = after(rests, step)
    return is_named(rests)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("event.card.number", "event.card.number"),
        ("Event.Card.NUMBER", "event.card.number"),
        ("headers.authorization", "headers.Authorization"),
        ("*.token", "kwargs.token"),
        ("**.password", "event.password"),
        ("**.password", "event.a.b.0.Password"),
        ("event.items.0.pin", "event.items.0.pin"),
        ("event.items.*.pin", "event.items.7.pin"),
        ("event.**.pin", "event.pin"),
        ("event.**", "event"),
        ("event.**", "event.a.b"),
        ("**.a.**.b", "args.a.x.a.y.b"),
    ],
)
def test_a_path_that_a_pattern_names_is_found(pattern, path):
    assert is_found(pattern, *path.split("."))


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("event.card.number", "event.card"),
        ("event.card.number", "event.card.number.last"),
        ("*.token", "event.card.token"),
        ("*.token", "event.tokens"),
        ("**.password", "event.password.hash"),
        ("event.items.0.pin", "event.items.1.pin"),
        ("event.*.pin", "event.pin"),
    ],
)
def test_a_path_that_no_pattern_names_is_left(pattern, path):
    assert not is_found(pattern, *path.split("."))


@pytest.mark.parametrize("pattern", ["", ".", "a..b", "event.", ".password"])
def test_an_empty_step_is_refused(pattern):
    with pytest.raises(ValueError, match="empty step"):
        parse(pattern)


@pytest.mark.parametrize("pattern", ["event.pass*", "***.a"])
def test_a_star_within_a_name_is_refused(pattern):
    with pytest.raises(ValueError, match="steps of their own"):
        parse(pattern)
