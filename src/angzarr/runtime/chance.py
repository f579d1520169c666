"""Chance for jitter and samples; no secret is drawn by it.

The generator of the module `random` is the program's: a handler that seeds it draws what it
expects, whatever our threads do meanwhile. This one has no state: no fork draws what another drew.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

#: A number from 0 up to 1, which it never is.
chance: Final[Callable[[], float]] = random.SystemRandom().random
