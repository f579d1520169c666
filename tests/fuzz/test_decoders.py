"""The same inputs as ever for every decoder of queue bytes; `make fuzz` looks for others."""

from __future__ import annotations

import random

import pytest

from fuzz.decoders import DECODERS, Decoder
from fuzz.judging import fault
from fuzz.mutation import HOSTILE, mutated

#: Inputs for each.
MANY = 60


@pytest.mark.parametrize("name", DECODERS)
def test_its_samples_are_read(name):
    decoder = DECODERS[name]
    samples = decoder.samples()
    assert samples
    decoder.read(samples[0])


@pytest.mark.parametrize("name", DECODERS)
def test_no_input_costs_much_or_raises_what_is_not_declared(name):
    decoder, chance = DECODERS[name], random.Random(f"angzarr {name}")
    samples = decoder.samples()
    inputs = [*samples, *HOSTILE, b"", b"\x00", b"\xff" * 64]
    inputs += [mutated(chance, chance.choice(samples)) for _ in range(MANY)]
    for raw in inputs:
        wrong = fault(decoder, raw)
        assert not wrong, f"{wrong}: {raw[:2000]!r}"


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (lambda _: 1 / 0, "ZeroDivisionError: division by zero, which is not declared"),
        (lambda _: bytearray(200 * 2**20).count(b"x"), "MiB"),
        (lambda _: sum(range(2_000_000)), " s"),
    ],
)
def test_harm_is_told(harm, told, monkeypatch):
    monkeypatch.setattr("fuzz.judging.MOST_SECONDS", 0.001 if told == " s" else 60.0)
    assert told in fault(Decoder(harm, list, (ValueError,)), b"")


def test_a_sample_is_made_hostile_the_same_way_by_the_same_chance():
    (sample, *_) = DECODERS["message"].samples()
    again = [[mutated(random.Random(seed), sample) for seed in range(50)] for _ in range(2)]
    assert again[0] == again[1]
    assert len(set(again[0])) > 40
