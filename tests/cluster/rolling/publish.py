"""Publish RATE events a second until killed, and say in Redis what was sent."""

from __future__ import annotations

import itertools
import os
import sys
import time

import redis
from app import Counted, app

rate = float(sys.argv[1])
told = redis.Redis.from_url(os.environ["ANGZARR_STORE"])
began = time.monotonic()
for number in itertools.count():
    app.publish(Counted(number=number), id=f"count-{number}", root=str(number))
    told.rpush("published", number)
    time.sleep(max(began + (number + 1) / rate - time.monotonic(), 0))
