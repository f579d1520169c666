"""More of AWS through boto3: DynamoDB, KMS, secrets, functions."""

from __future__ import annotations

import json
from typing import Any

import boto3
from botocore.config import Config
from tools.corpus.cases import both, corrupt, ill, misconfigured, rejected, well
from tools.corpus.events import OrderPlaced
from tools.corpus.places import web
from tools.corpus.scenario import scenario
from tools.corpus.themes.aws_calls import KEYS

STORE = "orders-table"


def _client(service: str, status: int, answer: dict[str, Any]) -> Any:
    """Return a client of *service*, which answers every call so."""
    kind = {"Content-Type": "application/x-amz-json-1.0"}
    web.url("/", status, json.dumps(answer).encode(), headers=kind)
    once = Config(retries={"total_max_attempts": 1}, read_timeout=30, proxies={})
    endpoint = f"http://{web.LOOPBACK}:{web.plain_port()}"
    return boto3.session.Session().client(
        service, endpoint_url=endpoint, config=once, region_name="eu-central-1", **KEYS
    )


def _dynamo(code: str, message: str, status: int = 400) -> None:
    said = {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": message}
    client = _client("dynamodb", status, said)
    client.put_item(TableName="orders", Item={"id": {"S": "o-4711"}})


def _secret(code: str, message: str) -> None:
    client = _client("secretsmanager", 400, {"__type": code, "message": message})
    client.get_secret_value(SecretId="shop/payments")


def _decrypt(code: str, message: str) -> None:
    _client("kms", 400, {"__type": code, "message": message}).decrypt(CiphertextBlob=b"x")


@scenario(misconfigured("the table in our settings does not exist"))
def no_table(_order: OrderPlaced) -> None:
    _dynamo("ResourceNotFoundException", "Requested resource not found")


@scenario(rejected("somebody bought the last piece before: the condition does not hold"))
def condition(_order: OrderPlaced) -> None:
    _dynamo("ConditionalCheckFailedException", "The conditional request failed")


@scenario(both(STORE, "more writes than the table takes", "the rush is over"))
def throughput(_order: OrderPlaced) -> None:
    said = "The level of configured provisioned throughput for the table was exceeded."
    _dynamo("ProvisionedThroughputExceededException", said)


@scenario(corrupt("the item of one order is larger than they take"))
def item_too_large(_order: OrderPlaced) -> None:
    _dynamo("ValidationException", "Item size has exceeded the maximum allowed size")


@scenario(misconfigured("our role may not write to the table"))
def may_not(_order: OrderPlaced) -> None:
    said = "User: shop is not authorized to perform: dynamodb:PutItem on resource: orders"
    _dynamo("AccessDeniedException", said)


@scenario(well("it broke on its side for a minute", STORE))
def broke(_order: OrderPlaced) -> None:
    _dynamo("InternalServerError", "Internal server error", 500)


@scenario(misconfigured("the secret that our settings name was removed"))
def no_secret(_order: OrderPlaced) -> None:
    said = "Secrets Manager can't find the specified secret."
    _secret("ResourceNotFoundException", said)


@scenario(misconfigured("the key that our settings name is disabled"))
def key_disabled(_order: OrderPlaced) -> None:
    _decrypt("DisabledException", "arn:aws:kms:eu-central-1:000000000042:key/1 is disabled.")


@scenario(corrupt("what is to be decrypted is damaged"))
def bad_ciphertext(_order: OrderPlaced) -> None:
    _decrypt("InvalidCiphertextException", "")


@scenario(ill("too many calls of the function at once", "price-function"))
def function_throttled(_order: OrderPlaced) -> None:
    said = {"Type": "User", "message": "Rate Exceeded."}
    client = _client("lambda", 429, said)
    web.url(
        "/2015-03-31/functions/price/invocations", 429, json.dumps(said).encode(),
        headers={"x-amzn-ErrorType": "TooManyRequestsException"},
    )  # fmt: skip
    client.invoke(FunctionName="price", Payload=b"{}")


@scenario(misconfigured("the function that our settings name was removed"))
def no_function(_order: OrderPlaced) -> None:
    said = {"Type": "User", "Message": "Function not found: price"}
    client = _client("lambda", 404, said)
    web.url(
        "/2015-03-31/functions/pryce/invocations", 404, json.dumps(said).encode(),
        headers={"x-amzn-ErrorType": "ResourceNotFoundException"},
    )  # fmt: skip
    client.invoke(FunctionName="pryce", Payload=b"{}")


@scenario(misconfigured("the profile in our settings is not on this host"))
def no_profile(_order: OrderPlaced) -> None:
    boto3.session.Session(profile_name="shop-production")
