"""Settings of payload stores: where large bodies of messages and of letters are kept (F4)."""

from __future__ import annotations

import re
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import unquote, urlsplit

from pydantic import Field, field_validator, model_validator

from angzarr.resilience.idempotency import RECORD_LIFE
from angzarr.settings.base import Keep, Section, Span
from angzarr.settings.body_encryption import BodyEncryptionSettings

#: What S3 and those who speak its language take as the name of a bucket.
_BUCKET: Final = re.compile("[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
#: Schemes that fsspec knows and that cannot keep payloads: they cannot be written, they are
#: another view of a store, or they are names for what we open ourselves.
_REFUSED: Final = frozenset(
    {"file", "http", "https", "data", "blockcache", "cached", "filecache", "simplecache",
     "reference", "zip", "tar", "s3a", "local"}
)  # fmt: skip
_SCHEME: Final = re.compile("[a-z][a-z0-9+-]{1,30}")

WHAT: Final = (
    "a payload store is file:///absolute/folder, s3://bucket/prefix, or a URL of fsspec such as"
    " gs://bucket/prefix, without user, password or query"
)


class PayloadPlace(NamedTuple):
    """What the address of a payload store names: a folder, or a bucket and a prefix.

    `scheme` is ``file``, ``s3``, or one that fsspec opens.
    """

    scheme: str
    bucket: str
    path: str


def place_of(url: str) -> PayloadPlace:
    """The place that *url* names; raises ValueError with the cure, repeating none of it."""
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    path = unquote(parts.path)
    plain = not (parts.query or parts.fragment or "\x00" in path or "@" in parts.netloc)
    if plain and parts.scheme == "file" and parts.netloc in ("", "localhost"):
        if path.startswith("/"):
            return PayloadPlace("file", "", path)
    elif plain and parts.scheme == "s3":
        if _BUCKET.fullmatch(parts.netloc):
            return PayloadPlace("s3", parts.netloc, path.strip("/"))
    elif plain and _is_fsspecs(url, parts.scheme) and (parts.netloc or path.strip("/")):
        return PayloadPlace(parts.scheme, parts.netloc, path.strip("/"))
    raise ValueError(WHAT)


def _is_fsspecs(url: str, scheme: str) -> bool:
    """True if *url* may be one of fsspec's: no chain of several, and no way up."""
    if scheme in _REFUSED or not _SCHEME.fullmatch(scheme):
        return False
    return url.startswith(f"{scheme}://") and "::" not in url and "/.." not in url


class PayloadStoreSettings(Section):
    """One payload store, and how it is reached."""

    #: ``file:///folder``, ``s3://bucket/prefix`` or a URL of fsspec; None: there is no store.
    url: str | None = Field(default=None, repr=False)
    #: Bodies of more bytes go there.
    over: int | None = Field(default=None, ge=0)
    region: str | None = None
    endpoint_url: str | None = Field(default=None, repr=False)
    #: What fsspec's file system is given besides: tokens, keys, a project. May hold secrets.
    options: dict[str, Any] = Field(default_factory=dict, repr=False)

    @field_validator("url")
    @classmethod
    def _url(cls, url: str | None) -> str | None:
        if url is not None:
            place_of(url)
        return url

    @model_validator(mode="after")
    def _complete(self) -> PayloadStoreSettings:
        given = {"over": self.over, "region": self.region, "endpoint_url": self.endpoint_url}
        said = [name for name, value in given.items() if value is not None]
        said += ["options"] if self.options else []
        if not said:
            return self
        if self.url is None:
            msg = f"{said[0]} says how to use a payload store, and url names none"
            raise ValueError(msg)
        scheme = place_of(self.url).scheme
        for name in ("region", "endpoint_url"):
            if name in said and scheme != "s3":
                msg = f"{name} is for s3:// only"
                raise ValueError(msg)
        if self.options and scheme in ("file", "s3"):
            msg = "options are for URLs of fsspec only, such as gs://"
            raise ValueError(msg)
        return self


class PayloadSettings(PayloadStoreSettings):
    """Where the bodies of letters go that are too large for their queue.

    `over` None: they go there once a queue has refused their letter.
    """

    #: Bytes of a payload that is opened for a person at most; a worker sends any.
    largest_opened: int = Field(default=32 * 1024 * 1024, ge=1)


class MessagePayloadSettings(BodyEncryptionSettings, PayloadStoreSettings):
    """Where the bodies of messages go that are too large for their broker, and their keys.

    `over` None: as many bytes as the broker takes for certain.
    """

    #: How bodies are packed there, where that makes them smaller by a tenth.
    compression: Literal["zstd", "none"] = "zstd"
    #: For how long nothing must have held a body before it is deleted; of letters, too.
    grace: Span = Field(default=2 * RECORD_LIFE, ge=RECORD_LIFE)
    #: For how long a body may be held at most; None: as long as it takes.
    keep: Keep = None

    @model_validator(mode="after")
    def _keeps_longer(self) -> MessagePayloadSettings:
        if self.keep is not None and self.keep < self.grace:
            msg = "keep must not be shorter than grace: a body that is needed would go first"
            raise ValueError(msg)
        return self


#: What says where a store is and how it is reached; letters follow messages in these.
_PLACE: Final = ("url", "region", "endpoint_url", "options")


def with_store_of_letters(given: Any) -> Any:
    """*given*, all settings as they were said, with `payloads.url` for letters too.

    `dlq.payloads` keeps what it says; where it names no store, letters use that of messages.
    """
    if not isinstance(given, dict) or not isinstance(payloads := given.get("payloads"), dict):
        return given
    dlq = given.get("dlq") or {}
    own = dlq.get("payloads") or {} if isinstance(dlq, dict) else None
    if payloads.get("url") is None or not isinstance(own, dict) or own.get("url") is not None:
        return given
    shared = {name: payloads[name] for name in _PLACE if payloads.get(name) is not None}
    return {**given, "dlq": {**dlq, "payloads": {**own, **shared}}}
