"""Forwards to tools/servers, where this now is."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parents[2] / "tools" / "servers"
os.execv(sys.executable, [sys.executable, str(HERE), *sys.argv[1:]])  # noqa: S606 - that is meant
