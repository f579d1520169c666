"""Names on AWS: as angzarr.dead_letters.names and kombu's SQS transport write them."""

from __future__ import annotations

import hashlib
import re
import string

PREFIX = "angzarr-dlq-"
#: SQS takes no longer name.
LONGEST = 80
FIFO = ".fifo"
#: The queue of what SNS could not deliver: that of a domain, so that `dlq.domains` can name it.
UNDELIVERED = "undelivered"
#: What is added to the name of a task queue for what was received too often.
REDRIVEN = "-redriven"

_HASH = 10
_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")
_OWN = re.compile(r"[a-z][a-z0-9.-]{0,63}")
_KOMBUS = {ord(sign): "_" for sign in string.punctuation if sign not in "-_."} | {ord("."): "-"}


def letters(domain: str, *, fifo: bool = False) -> str:
    """Return what *domain*'s queue of dead letters is called, and its topic."""
    suffix = FIFO if fifo else ""
    plain = domain.replace(".", "-")
    mapped = _FOREIGN.sub("-", plain)
    name = PREFIX + (mapped or "unknown")
    room = LONGEST - len(suffix)
    if mapped == plain and len(name) <= room:
        return name + suffix
    mark = hashlib.sha256(domain.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH]
    return f"{name[: room - _HASH - 1]}-{mark}{suffix}"


def tasks(queue: str, prefix: str = "") -> str:
    """Return what Celery's *queue* is called on SQS; *prefix* is its ``queue_name_prefix``."""
    name = prefix + queue
    if name.endswith(FIFO):
        return name[: -len(FIFO)].translate(_KOMBUS) + FIFO
    return name.translate(_KOMBUS)


def redriven(queue: str, prefix: str = "") -> str:
    """Return where messages of *queue* go that were received too often; FIFO as that is."""
    name = tasks(queue, prefix)
    if name.endswith(FIFO):
        return name[: -len(FIFO)] + REDRIVEN + FIFO
    return name + REDRIVEN


def is_domain(name: object) -> bool:
    """Tell whether *name* is a domain that an app may have."""
    return isinstance(name, str) and bool(_OWN.fullmatch(name))
