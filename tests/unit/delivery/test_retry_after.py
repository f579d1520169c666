"""What the other side asks for, from the client's own error to the delay of the copy."""

from __future__ import annotations

import json
import threading
from concurrent import futures
from datetime import timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import botocore.session
import grpc
import httpx
import pytest
import requests
import urllib3
from botocore.config import Config
from google.protobuf.duration_pb2 import Duration
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status
from tests.hand_clock import START

from angzarr.delivery.delivery import DeadLettered, Retried
from angzarr.resilience.backoff import Policy
from angzarr.resilience.retry_after import LONGEST

#: Without jitter a delay is what was asked for, or the policy's second.
STEADY = Policy(
    name="steady", base=timedelta(seconds=1), max_delay=timedelta(seconds=1), max_attempts=3,
    jitter="none",
)  # fmt: skip
CONFLICT = json.dumps({"type": "https://api.test/problems/idempotency-conflict"}).encode()


class Answer(BaseHTTPRequestHandler):
    """Answers as the server says: status, Retry-After, body."""

    def do_GET(self):
        status, header, body = self.server.answer
        self.send_response(status)
        if header is not None:
            self.send_header("Retry-After", header)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815 - http.server asks for this name

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def site():
    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as running:
        running.url = f"http://127.0.0.1:{running.server_port}/"
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield running
        running.shutdown()


def by_httpx(url):
    httpx.get(url).raise_for_status()


def by_requests(url):
    requests.get(url, timeout=60).raise_for_status()


def by_botocore(url):
    session = botocore.session.Session(profile=None)
    session.set_credentials("key", "secret")
    config = Config(retries={"total_max_attempts": 1})
    session.create_client("sqs", "eu-west-1", endpoint_url=url, config=config).list_queues()


CLIENTS = [by_httpx, by_requests, by_botocore]


@pytest.fixture
def outcome_of(world):
    def outcome_of(call, **headers):
        world.handler(lambda _event, _ctx: call(), policy=STEADY)
        return world.take(**headers)

    return outcome_of


@pytest.mark.parametrize(
    ("header", "delay"),
    [
        ("7", timedelta(seconds=7)),
        (format_datetime(START + timedelta(seconds=90), usegmt=True), timedelta(seconds=90)),
        ("0", STEADY.base),
        (format_datetime(START - timedelta(hours=1), usegmt=True), STEADY.base),
        (None, STEADY.base),
        ("31536000", LONGEST),
        ("9" * 300, LONGEST),
        ("Fri, 31 Dec 9999 23:59:59 GMT", LONGEST),
    ],
    ids=["seconds", "date", "now", "past", "none", "a year", "absurd", "year 9999"],
)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_header_is_the_least_delay_and_never_more_than_a_day(
    outcome_of, site, client, header, delay
):
    site.answer = (503, header, b"{}")
    outcome = outcome_of(lambda: client(site.url))
    assert isinstance(outcome, Retried)
    assert outcome.delay == delay


@pytest.mark.parametrize("client", [by_httpx, by_requests])
@pytest.mark.parametrize(("header", "seconds"), [(None, 2), ("1", 2), ("30", 30)])
def test_an_idempotency_conflict_waits_two_seconds_at_least(
    outcome_of, site, client, header, seconds
):
    site.answer = (409, header, CONFLICT)
    assert outcome_of(lambda: client(site.url)).delay == timedelta(seconds=seconds)


def test_urllib3_keeps_no_header_of_what_it_gave_up_so_the_policy_says(outcome_of, site):
    site.answer = (503, "0", b"")
    retries = urllib3.Retry(total=1, status_forcelist=[503], backoff_factor=0)
    outcome = outcome_of(lambda: urllib3.request("GET", site.url, retries=retries))
    assert (outcome.seen.code, outcome.delay) == ("HTTP_503", STEADY.base)


class Busy(grpc.GenericRpcHandler):
    """Says when to come back, in a status or by itself, as the method's name asks."""

    def service(self, call):
        way = call.method.rpartition("/")[2]
        return grpc.unary_unary_rpc_method_handler(lambda _, context: self.fail(way, context))

    def fail(self, way, context):
        hint = error_details_pb2.RetryInfo(retry_delay=Duration(seconds=4, nanos=500_000_000))
        if way == "by_itself":
            raw = hint.SerializeToString()
            context.set_trailing_metadata((("google.rpc.retryinfo-bin", raw),))
            context.abort(grpc.StatusCode.UNAVAILABLE, "busy")
        status = status_pb2.Status(code=code_pb2.UNAVAILABLE, message="busy")
        status.details.add().Pack(hint)
        context.abort_with_status(rpc_status.to_status(status))


@pytest.fixture(scope="module")
def channel():
    server = grpc.server(futures.ThreadPoolExecutor(1), handlers=[Busy()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    server.stop(None).wait()


@pytest.mark.parametrize("way", ["in_a_status", "by_itself"])
def test_grpc_retry_info_is_the_least_delay(outcome_of, channel, way):
    outcome = outcome_of(lambda: channel.unary_unary(f"/busy/{way}")(b"", timeout=60))
    assert (outcome.seen.code, outcome.delay) == ("GRPC_UNAVAILABLE", timedelta(seconds=4.5))


def test_a_wish_beyond_the_deadline_ends_at_once(outcome_of, site):
    site.answer = (503, "60", b"")
    expires = (START + timedelta(seconds=60)).isoformat()
    outcome = outcome_of(lambda: by_httpx(site.url), expires=expires)
    assert isinstance(outcome, DeadLettered)
    assert (outcome.letter.reason, outcome.letter.error_code) == ("out_of_time", "HTTP_503")
