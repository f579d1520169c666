"""What is rolled out: an event takes a tenth of a second and says in Redis that it was handled."""

from __future__ import annotations

import os
import time

import redis
from pydantic import BaseModel

from angzarr import Angzarr

app = Angzarr("rolling")


class Counted(BaseModel):
    number: int


@app.handler(Counted, domain="count")
def count(counted: Counted) -> None:
    time.sleep(0.1)
    said = f"{counted.number} {time.time()} {os.environ['ANGZARR_RELEASE']}"
    redis.Redis.from_url(os.environ["ANGZARR_STORE"]).rpush("counted", said)
