from __future__ import annotations

import pytest

from angzarr.dead_letters.redaction import after, is_named, parse, start


def names(pattern: str, *steps: object) -> bool:
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
    assert names(pattern, *path.split("."))


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
    assert not names(pattern, *path.split("."))


@pytest.mark.parametrize("pattern", ["", ".", "a..b", "event.", ".password"])
def test_an_empty_step_is_refused(pattern):
    with pytest.raises(ValueError, match="empty step"):
        parse(pattern)


@pytest.mark.parametrize("pattern", ["event.pass*", "***.a"])
def test_a_star_within_a_name_is_refused(pattern):
    with pytest.raises(ValueError, match="steps of their own"):
        parse(pattern)
