"""The app whose dead letters are read: it has one domain, and what fails in it is held."""

from __future__ import annotations

import os

from angzarr import Angzarr

app = Angzarr("bench", broker=os.environ["BENCH_BROKER"])
