"""Settings of dead letters: backends, servers, redaction, spool, and large bodies (F4)."""

from __future__ import annotations

from datetime import timedelta
from pathlib import PurePath
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from angzarr.dead_letters.bounds import LETTER, WIDEST
from angzarr.dead_letters.names import ANALYSIS_GROUP
from angzarr.runtime.json_bounds import Bounds
from angzarr.settings.base import Section, Span, checked_domain
from angzarr.settings.payloads import PayloadSettings
from angzarr.settings.protection import ProtectionSettings

#: What boto3's client takes and no setting of ours says.
_OPTIONS: Final = frozenset(
    {"aws_access_key_id", "aws_secret_access_key", "aws_session_token", "use_ssl", "verify"}
)
_SWITCHES: Final = ("use_ssl", "verify")


class AwsSettings(Section):
    """Dead letters on AWS, whether a topic of SNS stands before their queue or not."""

    aws_region: str | None = None
    aws_endpoint_url: str | None = Field(default=None, repr=False)
    #: A profile of ~/.aws/config.
    aws_profile: str | None = None
    #: What boto3's client is given besides: ``verify``, ``use_ssl``, keys. May hold secrets.
    aws_options: dict[str, str | bool] = Field(default_factory=dict, repr=False)
    #: Whether queues and topics are FIFO: letters of one aggregate in order.
    aws_fifo: bool = False
    #: How long a received letter is hidden from others, renewed while it is in hand.
    aws_visibility: Span = Field(
        default=timedelta(minutes=5), ge=timedelta(seconds=10), le=timedelta(hours=12)
    )

    @field_validator("aws_options", mode="before")
    @classmethod
    def _known_options(cls, given: Any) -> Any:
        """Refuse options that boto3 does not take; the environment's "false" is not a file name."""
        if not isinstance(given, dict):
            return given
        if unknown := sorted(str(name) for name in given.keys() - _OPTIONS):
            known = ", ".join(sorted(_OPTIONS))
            msg = f"boto3's client takes no {', '.join(unknown)}; it takes {known}"
            raise ValueError(msg)
        words = {"true": True, "false": False}
        return {
            name: words.get(str(value).lower(), value) if name in _SWITCHES else value
            for name, value in given.items()
        }

    @field_validator("aws_endpoint_url")
    @classmethod
    def _endpoint(cls, url: str | None) -> str | None:
        if url is not None and not _is_http(url):
            msg = "it must be a URL of http:// or https://, e.g. http://localhost:4566"
            raise ValueError(msg)
        return url


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


Backend: TypeAlias = Literal["channel", "amqp", "kafka", "sqs", "sns_sqs", "pubsub", "none"]
Target: TypeAlias = Literal["amqp", "kafka", "sqs", "sns_sqs", "pubsub", "spool"]

#: What each needs besides its name.
_NEEDS: Final = {"kafka": "kafka_brokers", "pubsub": "pubsub_project"}


class SpoolSettings(Section):
    """The folder for letters that no dead-letter queue takes for now."""

    path: str | None = None
    #: What waits and what was set aside, in bytes; beyond it letters are refused, none is deleted.
    max_bytes: int = Field(default=1024**3, gt=0)
    #: Says that the path is on a volume that outlives the container, and the machine if need be.
    durable: bool = False

    @field_validator("path")
    @classmethod
    def _whole_path(cls, path: str | None) -> str | None:
        if path is not None and not PurePath(path).is_absolute():
            msg = "path must begin at the root, e.g. /var/lib/angzarr/spool"
            raise ValueError(msg)
        return path

    def problem(self) -> str:
        """Why letters cannot count as safe here, empty if they do."""
        if self.path is None:
            return "target 'spool' needs spool.path, e.g. /var/lib/angzarr/spool"
        if not self.durable:
            return (
                "a letter in the spool lets its message go, so say spool.durable: true if"
                f" {self.path} is on a volume that outlives the container (a disk of the host, a"
                " persistent volume); if it is not, leave 'spool' out of targets: messages are"
                " then held until a target is back"
            )
        return ""


#: A value of librdkafka's: any text may be a secret.
KafkaOption: TypeAlias = bool | int | float | SecretStr

#: librdkafka's settings that have a name here, or by which letters could be lost.
_NAMED_HERE: Final = {
    "bootstrap.servers": "kafka_brokers",
    "metadata.broker.list": "kafka_brokers",
    "group.id": "kafka_group",
}
_OURS: Final = frozenset(
    {
        "acks",
        "request.required.acks",
        "enable.idempotence",
        "max.in.flight",
        "max.in.flight.requests.per.connection",
        "delivery.timeout.ms",
        "message.timeout.ms",
        "linger.ms",
        "queue.buffering.max.ms",
        "message.max.bytes",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "auto.offset.reset",
        "partition.assignment.strategy",
        "topic.metadata.refresh.interval.ms",
        "allow.auto.create.topics",
    }
)


class AmqpTls(Section):
    """Files that secure the way to RabbitMQ; its certificate and name are always checked."""

    #: The authorities to trust instead of the system's.
    ca_certs: str | None = None
    #: Who we are, where the broker asks for it.
    certfile: str | None = None
    keyfile: str | None = None
    #: The name in the broker's certificate, where it is not the address's.
    server_hostname: str | None = None


class DeadLetterSettings(AwsSettings, ProtectionSettings):
    """The queues of dead letters (spec L5), and how letters are prepared for them."""

    backend: Backend | None = None
    #: A chain instead of one backend: what one does not take, the next one does.
    targets: tuple[Target, ...] | None = None
    spool: SpoolSettings = SpoolSettings()
    amqp_url: str | None = Field(default=None, repr=False)
    amqp_tls: AmqpTls = AmqpTls()
    kafka_brokers: str | None = Field(default=None, repr=False)
    #: librdkafka's own, e.g. for TLS and SASL.
    kafka_options: dict[str, KafkaOption] = Field(default_factory=dict, repr=False)
    #: The consumer group that takes letters away.
    kafka_group: str = Field(default=ANALYSIS_GROUP, min_length=1)
    #: Of topics that are created; -1 replicas: as many as the broker says.
    kafka_partitions: int = Field(default=3, ge=1)
    kafka_replication: int = Field(default=-1, ge=-1)
    pubsub_project: str | None = None
    #: Whether the letters of one aggregate are delivered in order, one after the other.
    pubsub_ordering: bool = False
    #: A regional endpoint, ``host`` or ``host:port``; else the global one.
    pubsub_endpoint: str | None = Field(default=None, repr=False)
    #: The domain of letters for which nothing else names one; None: it follows from the app's name.
    default_domain: str | None = None
    #: Domains that the analysis worker reads besides those of the app's handlers.
    domains: tuple[str, ...] = ()
    #: The domain of a queue's letters where neither handler nor event names one.
    queue_domains: dict[str, str] = Field(default_factory=dict)
    #: Whether queues and topics that are missing are created; else they are checked at first use.
    create_missing: bool = True
    accept_loss: bool = False
    #: The most that is made of one letter; one that holds more is filed with its bytes, unread. No
    #: less than workers write.
    most_values: int = Field(default=LETTER.nodes, ge=LETTER.nodes, le=WIDEST.nodes)
    most_levels: int = Field(default=LETTER.depth, ge=LETTER.depth, le=WIDEST.depth)
    #: Where the bodies of letters go that are too large for their queue (spec F4).
    payloads: PayloadSettings = PayloadSettings()

    @property
    def bounds(self) -> Bounds:
        """What a letter may hold."""
        return Bounds(nodes=self.most_values, depth=self.most_levels)

    @field_validator("default_domain")
    @classmethod
    def _default_domain(cls, name: str | None) -> str | None:
        return None if name is None else checked_domain(name)

    @field_validator("domains")
    @classmethod
    def _domains(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(checked_domain(name) for name in names)

    @field_validator("queue_domains")
    @classmethod
    def _queue_domains(cls, names: dict[str, str]) -> dict[str, str]:
        return {queue: checked_domain(name) for queue, name in names.items()}

    @field_validator("kafka_options", mode="before")
    @classmethod
    def _kafka_options(cls, given: Any) -> Any:
        for name, value in given.items() if isinstance(given, dict) else ():
            if not isinstance(value, str | int | float | SecretStr):
                msg = f"{name} must be text, a number, or yes or no"
                raise ValueError(msg)  # noqa: TRY004  pydantic's
            if name in _NAMED_HERE:
                msg = f"{name} is set as {_NAMED_HERE[name]}"
                raise ValueError(msg)
            if name in _OURS:
                msg = f"{name} is chosen so that no letter is lost; remove it"
                raise ValueError(msg)
        return given

    @field_validator("kafka_replication")
    @classmethod
    def _kafka_replication(cls, number: int) -> int:
        if number == 0:
            msg = "say how many replicas a topic has, or -1 for as many as the broker says"
            raise ValueError(msg)
        return number

    def plain_kafka_options(self) -> dict[str, Any]:
        """Librdkafka's options with their secrets, for its client only."""
        return {
            name: value.get_secret_value() if isinstance(value, SecretStr) else value
            for name, value in self.kafka_options.items()
        }

    @field_validator("pubsub_endpoint")
    @classmethod
    def _pubsub_endpoint(cls, address: str | None) -> str | None:
        if address is not None and "/" in address:
            msg = "must be a host, or host:port, without https://"
            raise ValueError(msg)
        return address

    @model_validator(mode="after")
    def _complete(self) -> DeadLetterSettings:
        if self.backend == "none" and not self.accept_loss:
            msg = "backend 'none' loses every dead letter; say accept_loss: true if you mean it"
            raise ValueError(msg)
        for name in self.targets or (self.backend,):
            needed = _NEEDS.get(name or "")
            if needed and not getattr(self, needed):
                what = "target" if self.targets else "backend"
                msg = f"{what} {name!r} needs {needed}"
                raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _chain_works(self) -> DeadLetterSettings:
        if problem := self._problem_of_chain():
            raise ValueError(problem)
        return self

    def _problem_of_chain(self) -> str:
        targets = self.targets or ()
        if self.targets is not None and self.backend is not None:
            return "backend and targets are two ways to say one thing: keep one of them"
        if self.targets is not None and targets in {(), ("spool",)}:
            return "targets must name a queue that letters go to, e.g. [kafka, spool]"
        if twice := [name for name in targets if targets.count(name) > 1]:
            return f"targets name {twice[0]!r} twice"
        if "spool" in targets[:-1]:
            return "'spool' must be the last of targets: it forwards to those before it"
        if "spool" in targets:
            return self.spool.problem()
        unused = self.spool.path is not None
        return "spool.path is set, but targets do not end with 'spool'" if unused else ""
