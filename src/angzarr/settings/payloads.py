"""The settings of payloads: where bodies go that are too large for a queue (spec F4)."""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple
from urllib.parse import unquote, urlsplit

from pydantic import Field, field_validator, model_validator

from angzarr.settings.base import Section

#: What S3 and those who speak its language take as the name of a bucket.
_BUCKET: Final = re.compile("[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


class PayloadPlace(NamedTuple):
    """What the address of a payload store names: a folder, or a bucket and a prefix."""

    scheme: Literal["file", "s3"]
    bucket: str
    path: str


class PayloadSettings(Section):
    """Where the bodies of letters go that are too large for their queue."""

    #: ``file:///folder`` or ``s3://bucket/prefix``; None: such letters are refused.
    url: str | None = Field(default=None, repr=False)
    #: Bodies of more bytes go there before any queue refuses their letter; None: after it did.
    over: int | None = Field(default=None, ge=0)
    region: str | None = None
    endpoint_url: str | None = Field(default=None, repr=False)
    #: Bytes of a payload that is opened for a person at most; a worker sends any.
    largest_opened: int = Field(default=32 * 1024 * 1024, ge=1)

    @field_validator("url")
    @classmethod
    def _url(cls, url: str | None) -> str | None:
        if url is not None:
            place_of(url)
        return url

    @model_validator(mode="after")
    def _complete(self) -> PayloadSettings:
        given = {"over": self.over, "region": self.region, "endpoint_url": self.endpoint_url}
        said = [name for name, value in given.items() if value is not None]
        if said and self.url is None:
            msg = f"{said[0]} says how to use a payload store, and url names none"
            raise ValueError(msg)
        for name in ("region", "endpoint_url"):
            if name in said and place_of(self.url or "").scheme != "s3":
                msg = f"{name} is for s3:// only"
                raise ValueError(msg)
        return self


def place_of(url: str) -> PayloadPlace:
    """Return what *url* names; raises ValueError with the cure, repeating none of it."""
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    plain = not (parts.query or parts.fragment)
    if plain and parts.scheme == "file" and parts.netloc in ("", "localhost"):
        folder = unquote(parts.path)
        if folder.startswith("/") and "\x00" not in folder:
            return PayloadPlace("file", "", folder)
    if plain and parts.scheme == "s3" and _BUCKET.fullmatch(parts.netloc):
        return PayloadPlace("s3", parts.netloc, unquote(parts.path).strip("/"))
    msg = "a payload store is file:///absolute/folder or s3://bucket/prefix"
    raise ValueError(msg)
