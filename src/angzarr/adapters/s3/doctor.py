"""Examination: what S3 tells of the bucket of payloads, for the doctor; only reads."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import boto3
from botocore.exceptions import ClientError

from angzarr.adapters.s3.payloads import config_of
from angzarr.doctor.letter_rules import PayloadsSeen

_GONE: Final = ("404", "NoSuchBucket")
_REFUSED: Final = ("403", "AccessDenied")


def examine(
    at: str,
    bucket: str,
    prefix: str,
    *,
    region: str | None,
    endpoint_url: str | None,
    timeout: float,
) -> PayloadsSeen:
    """What is known of the bucket; raises what boto3 raises if S3 does not answer."""
    config = config_of(timeout, path_style=endpoint_url is not None)
    client = boto3.session.Session().client(
        "s3", region_name=region, endpoint_url=endpoint_url, config=config
    )
    with contextlib.closing(client):
        try:
            client.head_bucket(Bucket=bucket)
        except ClientError as error:
            if _code(error) in _GONE:
                cure = f"aws s3 mb s3://{bucket}, or fix dlq.payloads.url"
                return PayloadsSeen(at=at, problem="the bucket does not exist", cure=cure)
            if _code(error) not in _REFUSED:
                raise  # who may write objects need not have the right to look
        return PayloadsSeen(at=at, deletes=_deletes(client, bucket, prefix and f"{prefix}/"))


def _deletes(client: Any, bucket: str, prefix: str) -> str | None:
    try:
        rules = client.get_bucket_lifecycle_configuration(Bucket=bucket).get("Rules", ())
    except ClientError as error:
        return "" if _code(error) == "NoSuchLifecycleConfiguration" else None
    return next(deleting(rules, prefix), "")


def deleting(rules: Sequence[Mapping[str, Any]], prefix: str) -> Iterator[str]:
    """The rules that delete objects below *prefix*, or some of them, in words.

    A rule by tags deletes none of ours: they have none.
    """
    for rule in rules:
        given = rule.get("Filter") or {}
        narrow = given.get("And") or given
        below = str(narrow.get("Prefix", rule.get("Prefix", "")) or "")
        ends = rule.get("Expiration") or {}
        when = ends.get("Days") or ends.get("Date")
        tagged = "Tag" in narrow or "Tags" in narrow
        meets = below.startswith(prefix) or prefix.startswith(below)
        if rule.get("Status") == "Enabled" and when and meets and not tagged:
            after = f"after {when} days" if "Days" in ends else f"on {when}"
            yield f"the rule {rule.get('ID', '')!r} deletes {below or 'all'}* {after}"


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
