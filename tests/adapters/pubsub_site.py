"""Where the tests of the dead-letter queue on Pub/Sub work; receives in a process of its own, too.

`python pubsub_site.py DOMAIN` takes one letter, says its id, and holds it.
"""

from __future__ import annotations

import sys
import threading
from datetime import timedelta

from angzarr.adapters.pubsub.dead_letters import PubSubDeadLetterQueue

PROJECT = "angzarr-tests"
#: The shortest that Google's client renews.
LEASE = timedelta(seconds=10)


def main(domain: str) -> None:
    queue = PubSubDeadLetterQueue(PROJECT, lease=LEASE)
    [receipt] = queue.receive([domain], limit=1, wait=timedelta(seconds=20))
    sys.stdout.write(f"{receipt.letter.id}\n")
    sys.stdout.flush()
    if "--end" not in sys.argv:
        threading.Event().wait(60)


if __name__ == "__main__":
    main(sys.argv[1])
