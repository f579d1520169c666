"""Payloads on S3, or what speaks its language: one object each, checked by S3 and by us."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Final

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

from angzarr.clock import Clock, SystemClock
from angzarr.errors import PayloadGone, PayloadStoreUnavailable
from angzarr.payloads.store import (
    FoundPayload,
    Namer,
    PayloadReference,
    StorageKind,
    check_size,
    is_below,
    is_name,
    name_in,
    name_of,
    new_name,
    sha256_in,
    sha256_of,
    verified,
)
from angzarr.runtime.processes import OncePerProcess

FAILURES: Final = (BotoCoreError, ClientError)


class S3PayloadStore:
    """Payloads as ``s3://<bucket>/<prefix>/ab/cdef…``; safe from any thread and across fork.

    The bucket must exist. *timeout* bounds each connect and each read and write. Credentials are
    found as boto3 finds them; *options* go to boto3's client, e.g. ``verify`` or keys.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        region: str | None = None,
        endpoint_url: str | None = None,
        timeout: timedelta = timedelta(seconds=5),
        clock: Clock | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        settings = {
            "region_name": region,
            "endpoint_url": endpoint_url,
            "config": config_of(timeout.total_seconds(), path_style=endpoint_url is not None),
            **(options or {}),
        }
        self._clock = clock or SystemClock()
        self._client = OncePerProcess[Any](lambda: boto3.session.Session().client("s3", **settings))

    def __str__(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}"

    def put(self, payload: bytes, /, name: Namer | None = None) -> PayloadReference:
        """Upload *payload*; S3 refuses it if it arrives damaged (see PayloadStore)."""
        sha256, chosen = sha256_of(payload), new_name(payload, str(self), name, self)
        with self._told("take"):
            self._client.get().put_object(
                Bucket=self._bucket,
                Key=self._prefix + chosen,
                Body=payload,
                ContentType="application/octet-stream",
                ChecksumSHA256=base64.b64encode(bytes.fromhex(sha256)).decode(),
            )
        return PayloadReference(
            kind=StorageKind.S3,
            uri=f"{self}{chosen}",
            sha256=sha256_in(chosen),
            size=len(payload),
            stored_at=self._clock.now(),
        )

    def fetch(self, reference: PayloadReference, /) -> bytes:
        """Download the payload (see PayloadStore)."""
        key = self._prefix + name_of(reference, str(self), self)
        with self._told("give"):
            try:
                found = self._client.get().get_object(Bucket=self._bucket, Key=key)
            except ClientError as error:
                if error.response.get("Error", {}).get("Code") != "NoSuchKey":
                    raise
                msg = f"the payload at {reference} is gone"
                raise PayloadGone(msg) from error
            with contextlib.closing(found["Body"]) as body:
                check_size(reference, found["ContentLength"])
                payload = body.read()
        return verified(reference, payload)

    def is_here(self, uri: str, /) -> bool:
        """True if *uri* is a place of this store (see PayloadStore)."""
        return is_below(uri, str(self))

    def delete(self, uri: str, /) -> None:
        """Delete the object (see PayloadStore); a bucket with versions keeps it as an old one."""
        key = self._prefix + name_in(uri, str(self), self)
        with self._told("delete"):
            self._client.get().delete_object(Bucket=self._bucket, Key=key)

    def find_all(self) -> Iterator[FoundPayload]:
        """Yield all payloads below the prefix, a thousand at a time (see PayloadStore)."""
        given: dict[str, Any] = {"Bucket": self._bucket, "Prefix": self._prefix}
        while given:
            with self._told("list"):
                page = self._client.get().list_objects_v2(**given)
            for one in page.get("Contents", ()):
                if is_name(name := one["Key"].removeprefix(self._prefix)):
                    yield FoundPayload(f"{self}{name}", one["Size"], one["LastModified"])
            token = page.get("NextContinuationToken")
            given = {**given, "ContinuationToken": token} if token else {}

    def close(self) -> None:
        """Close the connections; the next payload opens others."""
        client = self._client.forget()
        if client is not None:
            client.close()

    @contextlib.contextmanager
    def _told(self, verb: str) -> Iterator[None]:
        try:
            yield
        except FAILURES as error:
            msg = f"the payload store {self} does not {verb} payloads: {reason_of(error)}"
            raise PayloadStoreUnavailable(msg) from error


def config_of(timeout: float, *, path_style: bool) -> Config:
    """How boto3 is to wait and try; *timeout* is seconds."""
    return Config(
        connect_timeout=timeout,
        read_timeout=timeout,
        retries={"mode": "standard", "total_max_attempts": 2},
        # An endpoint of one's own seldom has a DNS name for each bucket.
        s3={"addressing_style": "path"} if path_style else None,
    )


#: What a person does about what S3 says.
_CURES: Final = {
    "NoSuchBucket": "create it, or correct the URL",
    "AccessDenied": "allow it to the user of these credentials",
    "InvalidAccessKeyId": "check the credentials",
    "SignatureDoesNotMatch": "check the credentials",
    "PermanentRedirect": "check the region",
}


def reason_of(error: BaseException) -> str:
    """What *error* says; client-side texts may hold addresses and keys, so no text."""
    if isinstance(error, NoCredentialsError):
        return (
            "no AWS credentials were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY,"
            " a profile, or a role"
        )
    if isinstance(error, ClientError):
        said = error.response.get("Error", {})
        code = said.get("Code", "")
        told = f"{code} {' '.join(said.get('Message', '').split())[:200]}".strip()
        return f"{told} ({_CURES[code]})" if code in _CURES else told
    return (
        f"no answer ({type(error).__name__}); check the network, and region and endpoint_url if set"
    )
