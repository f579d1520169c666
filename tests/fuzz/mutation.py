"""Mutation: a sample made hostile, the same way for the same chance. Pure."""

from __future__ import annotations

import random
import re

#: What values are replaced by: other types, numbers that are dear to read, what grows when parsed.
HOSTILE = (
    b"null", b"true", b"-1", b"1.5", b"1e999", b"NaN", b"9" * 5000, b'"high"', b"{}", b"[]",
    b'"\\ud800"', b'"\\u0000"', b'"' + b"9" * 5000 + b'"', b"[" * 5000, b"[[[[]]]]" * 9,
    b'{"__type__": "decimal", "__value__": "1e1000000"}',
    b'{"__type__": "decimal", "__value__": "x"}', b'{"__type__": [], "__value__": 1}',
    b'{"__type__": "uuid", "__value__": {"bytes": 5}}', b'{"$decimal": "1e1000000"}',
    b'{"$bytes": "?"}', b'"0001-01-01T00:00:00+14:00"', b"[" + b"[]," * 250_000 + b"[]]",
    b"{" + b'"a":0,' * 250_000 + b'"a":0}',
)  # fmt: skip
_VALUE = re.compile(rb'"(?:[^"\\]|\\.){0,80}"|-?\d+|null|true|false')


def mutated(chance: random.Random, sample: bytes) -> bytes:
    """Return *sample* with one to three things wrong with it."""
    for _ in range(chance.randint(1, 3)):
        sample = chance.choice(_WAYS)(chance, sample)
    return sample


def _replace_value(chance: random.Random, raw: bytes) -> bytes:
    found = list(_VALUE.finditer(raw))
    if not found:
        return raw
    one = chance.choice(found)
    return raw[: one.start()] + chance.choice(HOSTILE) + raw[one.end() :]


def _flip(chance: random.Random, raw: bytes) -> bytes:
    changed = bytearray(raw)
    for _ in range(chance.randint(1, 8)):
        if changed:
            changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def _cut(chance: random.Random, raw: bytes) -> bytes:
    return raw[: chance.randrange(len(raw) + 1)]


def _drop(chance: random.Random, raw: bytes) -> bytes:
    start = chance.randrange(len(raw) + 1)
    return raw[:start] + raw[start + chance.randint(1, 30) :]


def _repeat(chance: random.Random, raw: bytes) -> bytes:
    start = chance.randrange(len(raw) + 1)
    end = start + chance.randint(1, 30)
    return raw[:end] + raw[start:end] * chance.choice((1, 9, 5000)) + raw[end:]


_WAYS = (_replace_value, _replace_value, _flip, _cut, _drop, _repeat)
