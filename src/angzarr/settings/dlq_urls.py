"""Dead-letter queues named by URL: what backend one means, its settings, and where it is.

Nothing is opened; only links on the way to a spool's folder are followed. No error and no
text for people repeats what may be secret: user, password, options' values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from os.path import realpath
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from pydantic import ValidationError

from angzarr.dead_letters.fallback_queue import SPOOL
from angzarr.errors import ConfigurationError
from angzarr.settings.base import Section
from angzarr.settings.dead_letters import DeadLetterSettings, SpoolSettings

_S = TypeVar("_S", bound=Section)

#: What a queue's URL may look like, for people, and that of any place.
QUEUE_FORMS: Final = (
    "kafka://host:9092[,host2:9092], amqp://user:password@host:5672/vhost, amqps://…,"
    " sqs://region[?endpoint=http://…], sns-sqs://region, pubsub://project"
)
FORMS: Final = f"{QUEUE_FORMS}, spool:///folder"

_DEFAULT_PORT: Final = {"kafka": "9092", "amqp": "5672", "pyamqp": "5672", "amqps": "5671"}
_TLS: Final = ("ca_certs", "certfile", "keyfile", "server_hostname")
_AWS: Final = ("profile", "fifo")
_KAFKA: Final = ("group", "partitions", "replication")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePlace:
    """A dead-letter queue that was named."""

    backend: str
    #: Its fields of DeadLetterSettings.
    given: Mapping[str, Any] = field(repr=False)
    #: Where it is, without secrets.
    shown: str
    #: The servers it is at: places that have one in common are one place.
    spots: frozenset[str]

    def settings(self, **changes: Any) -> DeadLetterSettings:
        """The settings of its backend; raises ConfigurationError for an unknown backend."""
        return self._read(DeadLetterSettings, {**self.given, **changes})

    def spool(self) -> SpoolSettings:
        """The settings of a spool; raises ConfigurationError as `settings` does."""
        given = {name: value for name, value in self.given.items() if name != "create_missing"}
        return self._read(SpoolSettings, given)

    @property
    def create_missing(self) -> bool:
        """Whether it is made where it is missing."""
        return bool(self.given.get("create_missing", True))

    def _read(self, section: type[_S], given: Mapping[str, Any]) -> _S:
        try:
            return section(**given)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            told = f"{where}: {first['msg'].removeprefix('Value error, ')}"
            if first["type"] == "extra_forbidden":
                told = f"this version has no {self.backend}"
            msg = f"{self.shown} cannot be used: {told}"
            raise ConfigurationError(msg) from None


_Options: TypeAlias = dict[str, str]


def read_url(url: str) -> QueuePlace:
    """The place that *url* names; raises ConfigurationError, which does not repeat it."""
    try:
        parts = urlsplit(url)
        queries = [urlsplit(one).query for one in url.split(";")]
        options = dict(parse_qsl("&".join(queries), keep_blank_values=True))
    except ValueError as error:
        msg = f"a dead-letter queue's URL cannot be read; use {FORMS}"
        raise ConfigurationError(msg) from error
    read = _READERS.get(parts.scheme)
    if read is None:
        # What has no scheme may be anything, also a password.
        named = f"{parts.scheme[:20]}://" if "://" in url else "the URL"
        msg = f"{named} does not name a dead-letter queue: use {FORMS}"
        raise ConfigurationError(msg)
    create = _create_missing(options)
    try:
        place = read(url, parts, options)
    except ValueError as error:
        msg = f"an address in a dead-letter queue's URL cannot be read; use {FORMS}"
        raise ConfigurationError(msg) from error
    if options:
        msg = f"{place.shown} takes no option {min(options)[:40]!r}"
        raise ConfigurationError(msg)
    return replace(place, given={**place.given, "create_missing": create})


def place_of(backend: str, given: DeadLetterSettings, broker: str) -> QueuePlace:
    """The place that an app's settings mean by *backend*."""
    match backend:
        case "kafka":
            found = read_url(f"kafka://{given.kafka_brokers}")
        case "amqp":
            found = read_url(given.amqp_url or broker)
        case "spool":
            spots = frozenset({_spool_spot(str(given.spool.path))})
            found = QueuePlace(backend=SPOOL, given={}, shown=SPOOL, spots=spots)
        case _:
            spots = frozenset({f"{backend}:{given.model_dump_json()}"})
            if backend in ("sqs", "sns_sqs"):
                spots = _aws_spots(given.aws_region or "", given.aws_endpoint_url or "")
            found = QueuePlace(backend=backend, given={}, shown=backend, spots=spots)
    return replace(found, given={})


def _kafka(_url: str, parts: SplitResult, options: _Options) -> QueuePlace:
    login, _, brokers = parts.netloc.rpartition("@")
    if not brokers:
        msg = "a Kafka is named by its brokers: kafka://host:9092,host2:9092"
        raise ConfigurationError(msg)
    user, _, password = login.partition(":")
    secret = {"sasl.username": unquote(user), "sasl.password": unquote(password)} if login else {}
    client = {name: options.pop(name) for name in tuple(options) if "." in name}
    named = {f"kafka_{name}": options.pop(name) for name in _KAFKA if name in options}
    hosts = [_spot(one, "kafka") for one in brokers.split(",")]
    return QueuePlace(
        backend="kafka",
        given={"kafka_brokers": ",".join(hosts), "kafka_options": {**secret, **client}, **named},
        shown=f"kafka://{','.join(hosts)}",
        spots=frozenset(f"kafka:{_same_host(host)}" for host in hosts),
    )


def _amqp(url: str, _parts: SplitResult, options: _Options) -> QueuePlace:
    tls = {name: options.pop(name) for name in _TLS if name in options}
    brokers = [urlsplit(one.strip()) for one in url.split(";")]
    if not all(_READERS.get(one.scheme) is _amqp for one in brokers):
        msg = "brokers of a RabbitMQ are split by ';', each as amqp://user:password@host:port/vhost"
        raise ConfigurationError(msg)
    spots, shown = set(), []
    for one in brokers:
        host = _spot(one.netloc.rpartition("@")[2] or "localhost", one.scheme)
        vhost = unquote(one.path.removeprefix("/")) or "/"
        spots.add(f"amqp:{_same_host(host)}/{vhost}")
        shown.append(f"{one.scheme}://{host}/{'' if vhost == '/' else vhost}")
    plain = ";".join(one._replace(query="").geturl() for one in brokers)
    return QueuePlace(
        backend="amqp",
        given={"amqp_url": plain, **({"amqp_tls": tls} if tls else {})},
        shown=" or ".join(shown),
        spots=frozenset(spots),
    )


def _sqs(_url: str, parts: SplitResult, options: _Options) -> QueuePlace:
    endpoint = options.pop("endpoint", "")
    at = f" at {_host_of(endpoint)}" if endpoint else ""
    more = {f"aws_{name}": options.pop(name) for name in _AWS if name in options}
    return QueuePlace(
        backend=parts.scheme.replace("-", "_"),
        given={"aws_region": parts.netloc or None, "aws_endpoint_url": endpoint or None, **more},
        shown=f"{parts.scheme}://{parts.netloc}{at}",
        spots=_aws_spots(parts.netloc, endpoint),
    )


def _pubsub(_url: str, parts: SplitResult, _options: _Options) -> QueuePlace:
    return QueuePlace(
        backend="pubsub",
        given={"pubsub_project": parts.netloc},
        shown=f"pubsub://{parts.netloc}",
        spots=frozenset({f"pubsub:{parts.netloc}"}),
    )


def _spool(_url: str, parts: SplitResult, options: _Options) -> QueuePlace:
    if parts.netloc or not parts.path.strip("/"):
        msg = "a spool is named by its folder: spool:///var/lib/angzarr/spool"
        raise ConfigurationError(msg)
    path = unquote(parts.path)
    bound = {"max_bytes": options.pop("max_bytes")} if "max_bytes" in options else {}
    return QueuePlace(
        backend=SPOOL,
        given={"path": path, **bound},
        shown=f"spool://{path}",
        spots=frozenset({_spool_spot(path)}),
    )


_READERS: Final[Mapping[str, Callable[[str, SplitResult, _Options], QueuePlace]]] = {
    "kafka": _kafka,
    "amqp": _amqp,
    "pyamqp": _amqp,
    "amqps": _amqp,
    "sqs": _sqs,
    "sns-sqs": _sqs,
    "pubsub": _pubsub,
    "spool": _spool,
}


#: The schemes of queues.
QUEUE_SCHEMES: Final = frozenset(_READERS) - {SPOOL}


def _create_missing(options: _Options) -> bool:
    said = options.pop("create_missing", "true").lower()
    if said not in ("true", "false"):
        msg = "create_missing is true or false"
        raise ConfigurationError(msg)
    return said == "true"


def _spot(host: str, scheme: str) -> str:
    """*host* with its port."""
    named = host.strip().lower()
    has_port = ":" in named.rpartition("]")[2]
    return named if has_port else f"{named}:{_DEFAULT_PORT[scheme]}"


def _same_host(host: str) -> str:
    """One name for all names of this machine."""
    name, _, port = host.rpartition(":")
    return f"127.0.0.1:{port}" if name in ("localhost", "[::1]") else host


def _aws_spots(region: str, endpoint: str) -> frozenset[str]:
    """One spot for SQS and SNS: a topic fans out to the queue of its name."""
    return frozenset({f"aws:{region}@{_same_host(_host_of(endpoint))}"})


def _spool_spot(path: str) -> str:
    return f"spool:{realpath(path)}"  # two links to one folder are one place


def _host_of(endpoint: str) -> str:
    return urlsplit(endpoint).netloc.rpartition("@")[2]
