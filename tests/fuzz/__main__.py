"""Fuzz every decoder of queue bytes for some time: python tests/fuzz [SECONDS] [SEED].

Ends with 1 at the first input that no decoder may be given, which it writes into build/fuzz.
"""

from __future__ import annotations

import random
import sys
import time
from itertools import cycle
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1])]

from fuzz.decoders import DECODERS
from fuzz.judging import fault
from fuzz.mutation import mutated


def main(seconds: float, seed: int) -> int:
    """Return the exit code."""
    print(f"fuzzing for {seconds:g} s, seed {seed}")
    chance, until, tried = random.Random(seed), time.monotonic() + seconds, 0
    samples = {name: decoder.samples() for name, decoder in DECODERS.items()}
    for name in cycle(DECODERS):
        if time.monotonic() > until:
            break
        raw = mutated(chance, chance.choice(samples[name]))
        tried += 1
        if wrong := fault(DECODERS[name], raw):
            kept = Path("build/fuzz") / f"{name}-{seed}-{tried}"
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_bytes(raw)
            print(f"{name}: {wrong}; the input is {kept}")
            return 1
    print(f"{tried} inputs, none of which did harm")
    return 0


if __name__ == "__main__":
    given = [*sys.argv[1:], "60", ""]
    sys.exit(main(float(given[0]), int(given[1] or time.time()) if len(sys.argv) > 2 else 1))
