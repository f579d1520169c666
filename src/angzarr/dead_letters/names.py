"""The names of a domain's queue in each backend (spec L2). Pure; published names never change.

Quorum queues of RabbitMQ for what must not be dropped: letters, and what it gave up itself.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from angzarr.dead_letters.queue import NAME_PREFIX, UNKNOWN_DOMAIN
from angzarr.errors import InvalidDomainName
from angzarr.events.event import check_domain

#: The topic exchange that RabbitMQ's letters go through; the logical name's first part.
EXCHANGE: Final = "angzarr.dlq"
#: SQS takes the fewest: 80 characters of A-Z, a-z, 0-9, '-' and '_'. All backends share the form.
MAX_NAME_LENGTH: Final = 80

#: Kafka's consumer group of the analysis worker, and of all others that take letters away.
ANALYSIS_GROUP: Final = "angzarr-dlq-analysis"

_HASH_LENGTH: Final = 10
#: Names that are not made anew; an app has tens of domains, foreign letters may name any.
_REMEMBERED: Final = 1024
#: The name of an app that was given none.
_NAMELESS: Final = frozenset({None, "", "__main__", "angzarr"})
_NO_DOMAIN: Final = re.compile(r"[^a-z0-9]+")
#: Of an app's name, as a domain: every backend has room for it.
_LONGEST_APP: Final = 40
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_-]")


@lru_cache(maxsize=_REMEMBERED)
def queue_name(domain: str, suffix: str = "") -> str:
    """The name of *domain*'s queue, topic or subscription, for every backend.

    Any text gives a name that every backend takes: '.' becomes '-'; other characters become '-'
    and a hash is added, as it is where the name must be cut; an empty domain is ``unknown``.
    A *suffix*, such as SQS wants for a FIFO queue, counts for its length.
    """
    plain = domain.replace(".", "-")
    mapped = _FOREIGN.sub("-", plain)
    name = NAME_PREFIX + (mapped or UNKNOWN_DOMAIN)
    room = MAX_NAME_LENGTH - len(suffix)
    if mapped == plain and len(name) <= room:
        return name + suffix
    mark = hashlib.sha256(domain.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_LENGTH]
    return f"{name[: room - _HASH_LENGTH - 1]}-{mark}{suffix}"


@lru_cache(maxsize=_REMEMBERED)
def routing_key(domain: str) -> str:
    """The key that leads from the exchange to *domain*'s queue; never a pattern.

    An own domain keeps its dots; a foreign one is written as in its queue's name.
    """
    name = queue_name(domain)
    kept = name == NAME_PREFIX + domain.replace(".", "-")
    return f"{EXCHANGE}.{domain if kept else name.removeprefix(NAME_PREFIX)}"


def routing_keys(domain: str) -> tuple[str, ...]:
    """The keys that lead to *domain*'s queue: ours first, then the bare domain.

    The publisher of the original, in another language, uses the domain as it is. One that would be
    written otherwise here is bound by our key alone: it may be a pattern.
    """
    key = routing_key(domain)
    return (key, domain) if key == f"{EXCHANGE}.{domain}" and domain else (key,)


def domain_of_app(name: str | None) -> str:
    """The domain that an app's *name* gives its letters; ``unknown`` where it has none.

    Letters name their app too (`DeadLetter.component`), so that anybody can tell whose one is.
    """
    if name in _NAMELESS:
        return UNKNOWN_DOMAIN
    plain = _NO_DOMAIN.sub("-", str(name).lower()).strip("-").lstrip("-0123456789")
    return plain[:_LONGEST_APP].rstrip("-") or UNKNOWN_DOMAIN


def dropped_queue(prefix: str) -> str:
    """The queue of the task broker to which RabbitMQ moves what it gives up.

    Apps that share a broker must differ in their prefix, or would make each other's letters.
    """
    return f"{prefix}-dropped"


def check_domains(domains: Iterable[str]) -> None:
    """Raise InvalidDomainName if a domain has a bad name or two share a queue."""
    taken: dict[str, str] = {}
    for domain in domains:
        name = queue_name(check_domain(domain))
        other = taken.setdefault(name, domain)
        if other != domain:
            msg = (
                f"domains {other!r} and {domain!r} would share the dead-letter queue {name!r}"
                " ('.' is written as '-'): rename one of them"
            )
            raise InvalidDomainName(msg)


#: The first release whose quorum queues drop a message after 20 returns unless told otherwise; it
#: has no mirrored queues any more.
LIMITS_BY_DEFAULT: Final = 4


def arguments_for(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that declare such a queue on the server with *properties*."""
    limit = {"x-delivery-limit": -1} if release_of(properties) >= LIMITS_BY_DEFAULT else {}
    return {"x-queue-type": "quorum", **limit}


def release_of(properties: Mapping[str, Any]) -> int:
    """The first number of a server's version; 0 where it tells none."""
    number = str(properties.get("version", "")).partition(".")[0]
    return int(number) if number.isascii() and number.isdecimal() else 0
