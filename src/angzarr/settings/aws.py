"""The settings of dead letters on AWS: where it is, who asks, how letters are kept there."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from angzarr.settings.base import Section, Span

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
        """Refuse what boto3 does not take; the environment's "false" is no file's name."""
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
