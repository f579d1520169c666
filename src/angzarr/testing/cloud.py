"""Cloud: SQS, SNS and S3 for tests, played by moto in this process or by a LocalStack."""

from __future__ import annotations

import os
import random
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import pytest

from angzarr.errors import MissingExtra

#: Where a LocalStack may be named, the first that is set.
VARIABLES: Final = ("ANGZARR_TEST_SQS_ENDPOINT", "AWS_ENDPOINT_URL")
REGION: Final = "us-east-1"
#: Seconds in which a LocalStack answers that is there.
_PATIENCE: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Aws:
    """A stand-in for AWS; `endpoint_url` is None where it is boto3 in this process that is played.

    Keys are of no consequence there.
    """

    endpoint_url: str | None = None
    region: str = REGION
    #: The access key. LocalStack takes one of twelve digits for the number of an account, and no
    #: account sees what another has.
    key: str = "test"

    @property
    def dlq(self) -> dict[str, Any]:
        """Settings ``dlq`` under which dead letters go there; add ``backend``."""
        return {
            "aws_endpoint_url": self.endpoint_url,
            "aws_region": self.region,
            "aws_options": {"aws_access_key_id": self.key, "aws_secret_access_key": "test"},
        }

    def client(self, service: str) -> Any:
        """A client of boto3 for ``sqs``, ``sns`` or ``s3``."""
        import boto3

        session: Any = boto3.session.Session(self.key, "test", region_name=self.region)
        return session.client(service, endpoint_url=self.endpoint_url)


@contextmanager
def open_moto() -> Iterator[Aws]:
    """Let boto3 in this process talk to an empty AWS that is none; raises MissingExtra.

    Variables that would lead it to another address are not seen meanwhile.
    """
    try:
        from moto import mock_aws
    except ModuleNotFoundError as error:
        raise MissingExtra("moto", "testing") from error
    with pytest.MonkeyPatch.context() as patches, mock_aws():
        for name in list(os.environ):
            if name.startswith("AWS_ENDPOINT_URL"):
                patches.delenv(name)
        patches.setenv("AWS_DEFAULT_REGION", REGION)
        yield Aws()


def open_localstack() -> Aws:
    """A fresh account of LocalStack; skips the test without one."""
    return Aws(endpoint_url=localstack_address(), key=str(random.randrange(10**11, 10**12)))  # noqa: S311 - no secret


def localstack_address() -> str:
    """The address of LocalStack; skips the test without one, and fails it in CI."""
    named = next((name for name in VARIABLES if os.environ.get(name)), None)
    if named is None:
        _do_without(f"no LocalStack: start one and name it, {VARIABLES[0]}=http://localhost:4566")
    address = os.environ[named].rstrip("/")
    if not address.startswith(("http://", "https://")):
        _do_without(f"{named} is not a URL: {address}; e.g. http://localhost:4566")
    try:
        urllib.request.urlopen(f"{address}/_localstack/health", timeout=_PATIENCE).close()  # noqa: S310 - checked above
    except OSError as error:
        why = f"no LocalStack answers at {address} ({error}): start it, or unset {named}"
    else:
        return address
    return _do_without(why)


def _do_without(reason: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason} (in CI it must be there)", pytrace=False)
    pytest.skip(reason)
