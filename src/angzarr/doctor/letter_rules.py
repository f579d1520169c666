"""What becomes of dead letters and of their payloads: where they are kept, who reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from angzarr.doctor.finding import Area, Check, Finding, Fix, Severity

#: The fix: makes the queue or topic of a domain.
CREATE: Final = "create-dead-letter-queue"
_LETTERS, _CRITICAL, _ERROR = Area.LETTERS, Severity.CRITICAL, Severity.ERROR
_WARNING = Severity.WARNING

DISCARDED: Final = Check(
    id="letters-discarded",
    area=_LETTERS,
    severity=_CRITICAL,
    looks_at="dlq.backend",
    why="what fails for good is thrown away, or dies with its process",
)
NOT_TAKEN: Final = Check(
    id="dead-letter-queue-missing",
    area=_LETTERS,
    severity=_WARNING,
    looks_at="the queue, topic and subscription of each domain",
    why="the first letter of the domain finds no queue: it is made then, or where"
    " dlq.create_missing is off the message is held and comes round until it is",
    fixable=True,
)
WEAK: Final = Check(
    id="dead-letter-queue-loses",
    area=_LETTERS,
    severity=_CRITICAL,
    looks_at="retention, length limits, delivery limits, redrive and replicas of letters' queues",
    why="letters are deleted or moved before anybody has read them",
)
UNFIT: Final = Check(
    id="dead-letter-queue-unfit",
    area=_LETTERS,
    severity=_ERROR,
    looks_at="exchange, queues and subscriptions that letters are refused by",
    why="no letter is taken: messages that fail are held by their workers, and hold up others",
)
TOPIC: Final = Check(
    id="dead-letter-topic-unlike",
    area=_LETTERS,
    severity=_WARNING,
    looks_at="raw delivery, policy and key between letters' topics and their queues (SNS)",
    why="SNS confirms a letter before it is in the queue: one that it wraps has less room there,"
    " and one that it may not send is lost",
)
UNREAD: Final = Check(
    id="letters-unread",
    area=_LETTERS,
    severity=_WARNING,
    looks_at="queues angzarr-dlq-* whose domain this app's analysis worker does not read",
    why="letters wait in a queue without a reader, until its retention ends",
)
SHARED: Final = Check(
    id="letters-of-any-app",
    area=_LETTERS,
    severity=_WARNING,
    looks_at="the app's name, dlq.default_domain",
    why="letters of plain tasks go to angzarr-dlq-unknown, which the analysis worker of every app"
    " on the broker reads: another app files them, and cannot replay them",
)
NO_ANALYSIS: Final = Check(
    id="analysis-worker-missing",
    area=_LETTERS,
    severity=_WARNING,
    looks_at="letters that wait, and whether a consumer is there (RabbitMQ, Kafka)",
    why="letters pile up: nothing is classified, replayed or told to anybody",
)
NO_LEDGER: Final = Check(
    id="no-ledger",
    area=_LETTERS,
    severity=_WARNING,
    looks_at="ledger",
    why="no analysis worker can run without one: letters stay in their queues, unclassified",
)
SPOOL_FLEETING: Final = Check(
    id="spool-not-durable",
    area=_LETTERS,
    severity=_CRITICAL,
    looks_at="the file system of dlq.spool.path",
    why="a letter in the spool has let its message go, and the folder dies with the container",
)
SPOOL_ROOM: Final = Check(
    id="spool-without-room",
    area=_LETTERS,
    severity=_WARNING,
    looks_at="free space at dlq.spool.path against dlq.spool.max_bytes",
    why="the disk is full before the spool is: letters are refused, and messages are held",
)
SPOOL_WAITING: Final = Check(
    id="spool-waiting",
    area=_LETTERS,
    severity=_WARNING,
    looks_at="letters in the spool of this machine",
    why="letters wait on one machine's disk and in no queue: they are lost with it",
)
CHECKS: Final = (
    DISCARDED,
    NOT_TAKEN,
    WEAK,
    UNFIT,
    TOPIC,
    UNREAD,
    SHARED,
    NO_ANALYSIS,
    NO_LEDGER,
    SPOOL_FLEETING,
    SPOOL_ROOM,
    SPOOL_WAITING,
)
#: File systems that are gone with the machine or the container.
FLEETING: Final = frozenset({"tmpfs", "ramfs", "overlay", "aufs"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterQueueSeen:
    """The dead-letter queue of one domain, on whatever carries it."""

    domain: str
    name: str
    exists: bool = True
    #: Whether the first put of a letter creates it.
    made_when_missing: bool = True
    #: What is missing before it that letters come by, in words.
    lacks: str = ""
    #: By what the topic before it is unlike ours, each with what to do.
    topic: Sequence[str] = ()
    #: By what it loses letters, each with what to do.
    weak: Sequence[str] = ()
    #: Whether that is only the one replica of a single broker, or what an admin may have chosen.
    mild: bool = False
    #: Why it takes no letters.
    unfit: str = ""
    waiting: int = 0
    #: None: unknown.
    readers: int | None = None
    #: Whether this app's analysis worker reads it.
    read: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LettersSeen:
    """Where dead letters go."""

    at: str
    backend: str
    embedded: bool = False
    has_ledger: bool = True
    #: Whether letters for which nothing names a domain are told from those of other apps.
    has_own_domain: bool = True
    queues: Sequence[LetterQueueSeen] = ()


def findings(seen: LettersSeen) -> Iterator[Finding]:
    """The findings about where letters go."""
    if seen.backend == "none" or (seen.backend == "channel" and not seen.embedded):
        yield DISCARDED.found(
            seen.at,
            f"dlq.backend is {seen.backend!r}",
            "set dlq.backend to amqp, kafka, sqs, sns_sqs or pubsub",
        )
    if not seen.has_own_domain and not seen.embedded and seen.backend != "none":
        yield SHARED.found(
            seen.at,
            "the app has no name of its own",
            "name it, e.g. Angzarr('shop'), or set dlq.default_domain",
        )
    for queue in seen.queues:
        yield from _queue(seen, queue, f"{seen.at}, {queue.name}")


def ledger(at: str) -> Finding:
    """The finding that there is no ledger."""
    return NO_LEDGER.found(
        at,
        "no ledger is configured",
        "set ledger: postgresql+psycopg://… (ANGZARR_LEDGER), and run `angzarr dlq analyze`",
    )


def _queue(seen: LettersSeen, queue: LetterQueueSeen, at: str) -> Iterator[Finding]:
    if queue.unfit:
        yield UNFIT.found(
            at, queue.unfit, "fix it as the error says, or delete it once it is empty"
        )
        return
    if not queue.exists or queue.lacks:
        yield NOT_TAKEN.found(
            at,
            queue.lacks or "it does not exist",
            "create it, or let the first letter do so (dlq.create_missing: true)",
            severity=_WARNING if queue.made_when_missing else _ERROR,
            fix=_create(seen, queue),
        )
        return
    if queue.topic:
        yield TOPIC.found(at, ", ".join(queue.topic), "change it as it says in brackets")
    if queue.weak:
        only_moved = all("is moved to" in one for one in queue.weak)
        severity = _WARNING if queue.mild or only_moved else _CRITICAL
        told = ", ".join(queue.weak)
        yield WEAK.found(at, told, "change it as it says in brackets", severity=severity)
    if queue.waiting and not queue.read:
        yield UNREAD.found(
            at,
            f"{queue.waiting} letters of a domain that this app does not read",
            f"name the domain in dlq.domains: [{queue.domain}], or move them: angzarr dlq move",
        )
    elif queue.waiting and queue.readers == 0:
        yield NO_ANALYSIS.found(
            at, f"{queue.waiting} letters, no reader", "run `angzarr dlq analyze`"
        )


def _create(seen: LettersSeen, queue: LetterQueueSeen) -> Fix | None:
    if seen.backend not in ("amqp", "kafka", "sqs"):
        return None  # a topic and its subscription belong together: the first put makes both
    return Fix(
        kind=CREATE,
        at=seen.at,
        what=f"create the dead-letter queue {queue.name} on {seen.at}",
        arguments=(seen.backend, queue.domain),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolSeen:
    """The folder for letters that no queue takes for now."""

    at: str
    #: The type of its file system; None: unknown.
    file_system: str | None = None
    free: int | None = None
    most: int = 0
    waiting: int = 0


def spool_findings(seen: SpoolSeen) -> Iterator[Finding]:
    """The findings about the spool of this machine."""
    if seen.file_system in FLEETING:
        yield SPOOL_FLEETING.found(
            seen.at,
            f"it is on {seen.file_system}",
            "mount a persistent volume there, or leave 'spool' out of dlq.targets",
        )
    if seen.free is not None and seen.free < seen.most:
        yield SPOOL_ROOM.found(
            seen.at,
            f"{seen.free} bytes are free, dlq.spool.max_bytes is {seen.most}",
            f"give the volume more room, or set dlq.spool.max_bytes: {max(seen.free // 2, 1)}",
        )
    if seen.waiting:
        yield SPOOL_WAITING.found(
            seen.at, f"{seen.waiting} letters", "run `angzarr spool forward` on this machine"
        )


_LETTERS, _CRITICAL, _ERROR = Area.LETTERS, Severity.CRITICAL, Severity.ERROR

BUCKET_MISSING: Final = Check(
    id="payload-store-missing",
    area=_LETTERS,
    severity=_ERROR,
    looks_at="the bucket or folder of dlq.payloads.url and payloads.url",
    why="a letter whose body is too large for its queue cannot be put: its message is held and"
    " comes round; a message that is too large cannot be sent",
)
DELETED: Final = Check(
    id="payloads-deleted",
    area=_LETTERS,
    severity=_CRITICAL,
    looks_at="lifecycle rules of the bucket of dlq.payloads.url and payloads.url",
    why="S3 deletes bodies of letters that are still open, or of messages that wait: they are gone",
)
FLEETS: Final = Check(
    id="payload-store-not-durable",
    area=_LETTERS,
    severity=_CRITICAL,
    looks_at="the file system of dlq.payloads.url and payloads.url",
    why="the bodies of letters die with the container, and their messages were let go",
)
THRESHOLD: Final = Check(
    id="payload-threshold-too-high",
    area=_LETTERS,
    severity=_ERROR,
    looks_at="payloads.over against what the broker takes",
    why="a message between the two is neither stored nor taken: its publish fails",
)
PAYLOAD_CHECKS: Final = (BUCKET_MISSING, DELETED, FLEETS, THRESHOLD)


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadsSeen:
    """A payload store as it is; whether it takes a payload only a write would tell."""

    at: str
    #: Why nothing can be written there, as far as that is seen; and the cure.
    problem: str = ""
    cure: str = ""
    #: The rule that deletes payloads, and after how long; None: that may not be asked.
    deletes: str | None = ""
    #: The type of a folder's file system; None: unknown, or no folder.
    file_system: str | None = None


def threshold_findings(at: str, over: int, safe: int) -> Iterator[Finding]:
    """The finding about a threshold of *over* bytes where the broker takes *safe* for certain."""
    if over > safe:
        yield THRESHOLD.found(
            at,
            f"{over} bytes; this broker takes {safe} for certain",
            f"set it to {safe}, or remove it",
        )


def payload_findings(seen: PayloadsSeen) -> Iterator[Finding]:
    """The findings about a payload store."""
    if seen.problem:
        yield BUCKET_MISSING.found(seen.at, seen.problem, seen.cure)
        return
    if seen.deletes is None:
        yield DELETED.unknown(
            seen.at,
            "its lifecycle rules may not be asked for",
            "see that none expires objects (s3:GetLifecycleConfiguration lets the doctor look)",
        )
    elif seen.deletes:
        yield DELETED.found(
            seen.at,
            seen.deletes,
            "disable the rule for this prefix, or let it end long after the last replay",
        )
    if seen.file_system in FLEETING:
        yield FLEETS.found(
            seen.at,
            f"it is on {seen.file_system}",
            "mount a volume there that all workers and the analysis worker share, or use s3://…",
        )
