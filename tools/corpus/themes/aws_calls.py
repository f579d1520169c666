"""S3 and SQS through boto3; where LocalStack refuses nothing, a small server speaks as AWS."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import boto3
from botocore.config import Config
from tools.corpus.cases import both, defect, ill, misconfigured, well
from tools.corpus.events import OrderPlaced
from tools.corpus.normal import show_port
from tools.corpus.places import web
from tools.corpus.places.servers import address
from tools.corpus.scenario import scenario

STORE = "invoices-bucket"
KEYS = {"aws_access_key_id": "000000000042", "aws_secret_access_key": "test"}


def _client(service: str, endpoint: str, **options: Any) -> Any:
    once = Config(
        retries={"total_max_attempts": 1}, connect_timeout=30,
        read_timeout=options.pop("read_timeout", 30),
        s3={"addressing_style": "path"}, signature_version=options.pop("signed", None),
        proxies={},
    )  # fmt: skip
    given = {"region_name": "eu-central-1", **KEYS, **options}
    session = boto3.session.Session()
    return session.client(service, endpoint_url=endpoint or None, config=once, **given)


def _localstack() -> str:
    found = address("localstack")
    show_port(int(found.rpartition(":")[2]), 4566)
    return found


def _s3_error(code: str, message: str, status: int) -> str:
    """Return the address of a bucket that answers every call so."""
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>"
    path = f"/invoices/{code}"
    web.url(path, status, body.encode(), headers={"Content-Type": "application/xml"})
    return f"http://{web.LOOPBACK}:{web.plain_port()}"


def _put(code: str, message: str, status: int) -> None:
    client = _client("s3", _s3_error(code, message, status))
    client.put_object(Bucket="invoices", Key=code, Body=b"%PDF")


def _sqs_error(code: str, message: str, status: int) -> str:
    web.url(
        "/", status, f'{{"__type": "com.amazonaws.sqs#{code}", "message": "{message}"}}'.encode(),
        headers={"Content-Type": "application/x-amz-json-1.0"},
    )  # fmt: skip
    return f"http://{web.LOOPBACK}:{web.plain_port()}"


def _send(endpoint: str) -> None:
    url = f"{endpoint}/000000000042/orders"
    _client("sqs", endpoint).send_message(QueueUrl=url, MessageBody="{}")


@scenario(both(STORE, "nothing listens there", "it is back"))
def down(_order: OrderPlaced) -> None:
    _client("s3", web.refused()).put_object(Bucket="invoices", Key="1", Body=b"%PDF")


@scenario(ill("it answers too late", STORE))
def read_timeout(_order: OrderPlaced) -> None:
    web.url("/invoices/slow", pause=1.5)
    endpoint = f"http://{web.LOOPBACK}:{web.plain_port()}"
    impatient = _client("s3", endpoint, read_timeout=0.5)
    impatient.put_object(Bucket="invoices", Key="slow", Body=b"%PDF")


@scenario(both(STORE, "more requests than it takes: slow down", "the rush is over"))
def slow_down(_order: OrderPlaced) -> None:
    _put("SlowDown", "Please reduce your request rate.", 503)


@scenario(well("it broke on its side for a minute", STORE))
def internal_error(_order: OrderPlaced) -> None:
    _put("InternalError", "We encountered an internal error. Please try again.", 500)


@scenario(ill("the queue takes no more of our calls for now", "sqs"))
def throttled(_order: OrderPlaced) -> None:
    _send(_sqs_error("ThrottlingException", "Rate exceeded", 400))


@scenario(misconfigured("our role may not write to the bucket"))
def access_denied(_order: OrderPlaced) -> None:
    _put("AccessDenied", "Access Denied", 403)


@scenario(misconfigured("the access key was deleted"))
def unknown_key(_order: OrderPlaced) -> None:
    _put("InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist.", 403)


@scenario(misconfigured("the session's token ran out: nobody renews it"))
def expired_token(_order: OrderPlaced) -> None:
    _put("ExpiredToken", "The provided token has expired.", 400)


@scenario(misconfigured("the secret in our settings is wrong"))
def wrong_secret(_order: OrderPlaced) -> None:
    _put("SignatureDoesNotMatch", "The request signature we calculated does not match.", 403)


@scenario(misconfigured("the clock of our host is wrong: somebody must set it"))
def wrong_clock(_order: OrderPlaced) -> None:
    _put("RequestTimeTooSkewed", "The request time is too far from now.", 403)


@scenario(misconfigured("no credentials are set on this host"))
def no_credentials(_order: OrderPlaced) -> None:
    nothing = {"AWS_EC2_METADATA_DISABLED": "true", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
               "AWS_CONFIG_FILE": "/dev/null", "HOME": "/nonexistent"}  # fmt: skip
    with patch.dict("os.environ", nothing, clear=True):
        client = boto3.session.Session().client("s3", region_name="eu-central-1")
        client.put_object(Bucket="invoices", Key="1", Body=b"%PDF")


@scenario(misconfigured("no region is set on this host"))
def no_region(_order: OrderPlaced) -> None:
    nothing = {"AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "AWS_CONFIG_FILE": "/dev/null"}
    with patch.dict("os.environ", nothing, clear=True):
        boto3.session.Session().client("sqs")


@scenario(misconfigured("the region in our settings is misspelt"))
def invalid_region(_order: OrderPlaced) -> None:
    boto3.session.Session().client("sqs", region_name="eu central 1", **KEYS)


@scenario(misconfigured("the bucket in our settings does not exist"), needs="localstack")
def no_such_bucket(_order: OrderPlaced) -> None:
    _client("s3", _localstack()).put_object(Bucket="invioces", Key="1", Body=b"%PDF")


@scenario(misconfigured("the queue in our settings does not exist"), needs="localstack")
def no_such_queue(_order: OrderPlaced) -> None:
    _send(_localstack())


@scenario(misconfigured("the host name of the endpoint is misspelt"))
def unknown_host(_order: OrderPlaced) -> None:
    endpoint = "http://s3.internal.invalid"
    _client("s3", endpoint).put_object(Bucket="invoices", Key="1", Body=b"%PDF")


@scenario(defect("a number is given where the client takes bytes"))
def wrong_parameter(order: OrderPlaced) -> None:
    _client("s3", web.refused()).put_object(Bucket="invoices", Key="1", Body=order.total)
