"""HTTP failures as httpx, requests, urllib3, urllib and botocore really raise them."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import botocore.exceptions
import botocore.session
import httpx
import pytest
import requests
import requests.adapters
import urllib3
from botocore.config import Config

from angzarr.resilience.category import Category, Classification
from angzarr.resilience.taxonomy import classify

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
IN_90_S = "Thu, 01 Jan 2026 12:01:30 GMT"
T, S, C = Category.TRANSIENT, Category.SERVER, Category.CLIENT
A, U = Category.AUTHORIZATION, Category.UNKNOWN

STATUSES = {
    **dict.fromkeys((408, 429, 503, 504), T),
    **dict.fromkeys((500, 502), S),
    **dict.fromkeys((400, 404, 422, 405, 410, 412, 418, 423, 451), C),
    **dict.fromkeys((401, 403), A),
    402: Category.BUDGET,
    409: Category.INTEGRITY,
    **dict.fromkeys((501, 505, 507, 599), U),
}


def raised(call: Callable[[], object]) -> Exception:
    try:
        call()
    except Exception as error:
        return error
    pytest.fail("nothing was raised")


def seen(call: Callable[[], object]) -> Classification:
    return classify(raised(call), now=NOW)


def opened(url: str, timeout: float) -> bytes:
    with urllib.request.urlopen(url, timeout=timeout) as answer:  # noqa: S310 - our own server
        return bytes(answer.read())


class Answer(BaseHTTPRequestHandler):
    """Answers ``/<status>``; ``/hang`` not at all, ``/cut`` by closing, ``/short`` too little."""

    def do_GET(self) -> None:
        what = self.path.partition("?")[0].strip("/")
        if what == "hang":
            self.server.may_end.wait(60)  # type: ignore[attr-defined]
        elif what == "short":
            self.send_response(200)
            self.send_header("Content-Length", "100")
            self.end_headers()
            self.wfile.write(b"little")
        elif what != "cut":
            self.answer(int(what))
        self.close_connection = True

    do_POST = do_GET  # noqa: N815 - http.server asks for this name

    def answer(self, status: int) -> None:
        self.send_response(status)
        if "?" in self.path:
            self.send_header("Retry-After", self.path.partition("?")[2].replace("+", " "))
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"oops")

    def log_message(self, *_: object) -> None:
        """Keep the test's output clean."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as running:
        running.may_end = threading.Event()  # type: ignore[attr-defined]
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.may_end.set()  # type: ignore[attr-defined]
        running.shutdown()


@pytest.fixture(scope="module")
def nobody() -> str:
    """An address where nobody listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{unused.getsockname()[1]}"


@pytest.fixture(scope="module")
def self_signed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A TLS server whose certificate nobody vouches for."""
    folder: Path = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost", "-keyout", folder / "key.pem", "-out", folder / "crt.pem"),
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "crt.pem", folder / "key.pem")
    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as running:
        running.handle_error = lambda *_: None  # type: ignore[method-assign]
        running.socket = context.wrap_socket(running.socket, server_side=True)
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"https://127.0.0.1:{running.server_port}"
        running.shutdown()


def httpx_answer(status: int, **response: object) -> Exception:
    transport = httpx.MockTransport(lambda _: httpx.Response(status, **response))  # type: ignore[arg-type]
    with httpx.Client(transport=transport) as client:
        return raised(client.get("http://crm.test/").raise_for_status)


@pytest.mark.parametrize(("status", "category"), STATUSES.items())
def test_httpx_status_decides(status: int, category: Category) -> None:
    found = classify(httpx_answer(status), now=NOW)
    assert (found.category, found.code) == (category, f"HTTP_{status}")
    assert found.retry_after is None


@pytest.mark.parametrize(("status", "category"), STATUSES.items())
def test_requests_status_decides(server: str, status: int, category: Category) -> None:
    found = seen(lambda: requests.get(f"{server}/{status}", timeout=60).raise_for_status())
    assert (found.category, found.code) == (category, f"HTTP_{status}")


@pytest.mark.parametrize("status", [404, 429, 500])
def test_urllib_status_decides(server: str, status: int) -> None:
    error = raised(lambda: opened(f"{server}/{status}?7", 5))
    with error:  # type: ignore[attr-defined]
        found = classify(error, now=NOW)
    assert (found.category, found.code) == (STATUSES[status], f"HTTP_{status}")
    assert found.retry_after == timedelta(seconds=7)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_status_survives_retries_inside_urllib3_and_requests(server: str, status: int) -> None:
    retry = urllib3.Retry(total=1, status_forcelist=[status], backoff_factor=0)
    with urllib3.PoolManager() as pool:
        inner = seen(lambda: pool.request("GET", f"{server}/{status}", retries=retry))
    with requests.Session() as session:
        session.mount("http://", requests.adapters.HTTPAdapter(max_retries=retry))
        outer = seen(lambda: session.get(f"{server}/{status}", timeout=60))
    for found in (inner, outer):
        assert (found.category, found.code) == (STATUSES[status], f"HTTP_{status}")


@pytest.mark.parametrize(
    ("header", "wait"),
    [
        ("7", 7),
        ("0", 0),
        (" 12 ", 12),
        ("1.5", 1.5),
        (IN_90_S, 90),
        ("Thursday, 01-Jan-26 12:00:05 GMT", 5),
        ("Thu, 01 Jan 2026 11:00:00 GMT", 0),  # past: at once
        ("99999999999999999999", 86_400),
        ("9" * 400, 86_400),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 86_400),
        ("soon", None),
        ("-5", None),
        ("", None),
        ("١٢", None),
    ],
)
def test_retry_after_header_is_read(header: str, wait: float | None) -> None:
    error = httpx_answer(503, headers={"Retry-After": header.encode()})
    found = classify(error, now=NOW).retry_after
    assert found == (None if wait is None else timedelta(seconds=wait))


def test_requests_retry_after_is_read(server: str) -> None:
    url = f"{server}/429?{IN_90_S.replace(' ', '+')}"
    found = seen(lambda: requests.get(url, timeout=60).raise_for_status())
    assert found.retry_after == timedelta(seconds=90)


@pytest.mark.parametrize(
    ("headers", "wait"), [({}, 2), ({"Retry-After": "1"}, 2), ({"Retry-After": "30"}, 30)]
)
@pytest.mark.parametrize(
    "kind",
    ["https://api.test/problems/idempotency-conflict", "urn:problem:idempotency-conflict/"],
)
def test_idempotency_conflict_means_again_with_the_same_key(
    kind: str, headers: dict[str, str], wait: int
) -> None:
    found = classify(httpx_answer(409, json={"type": kind}, headers=headers), now=NOW)
    assert (found.category, found.code) == (T, "IDEMPOTENCY_CONFLICT")
    assert found.retry_after == timedelta(seconds=wait)


@pytest.mark.parametrize(
    "body",
    [
        {"json": {"type": "https://api.test/no-idempotency-conflict"}},
        {"json": {"type": "about:blank", "title": "idempotency-conflict"}},
        {"json": {"type": 7}},
        {"json": ["idempotency-conflict"]},
        {"content": b"idempotency-conflict"},
        {"content": b"\xff\xfe"},
        {},
    ],
)
def test_any_other_409_is_a_duplicate(body: dict[str, object]) -> None:
    assert classify(httpx_answer(409, **body), now=NOW).category is Category.INTEGRITY


def test_body_not_yet_read_stays_unread() -> None:
    transport = httpx.MockTransport(
        lambda _: httpx.Response(409, stream=httpx.ByteStream(b'{"type": "idempotency-conflict"}'))
    )
    with (
        httpx.Client(transport=transport) as client,
        client.stream("GET", "http://crm.test/") as response,
    ):
        assert seen(response.raise_for_status).category is Category.INTEGRITY
        assert not response.is_stream_consumed


CLIENTS: dict[str, Callable[[str], object]] = {
    "httpx": lambda url: httpx.get(url, timeout=0.2),
    "requests": lambda url: requests.get(url, timeout=0.2),
    "urllib3": lambda url: urllib3.request("GET", url, timeout=0.2, retries=0),
    "urllib": lambda url: opened(url, 0.2),
    "botocore": lambda url: sqs(url).list_queues(),
}


def sqs(url: str, **config: object) -> object:
    session = botocore.session.Session(profile=None)
    session.set_credentials("key", "secret")
    settings = Config(
        connect_timeout=0.2, read_timeout=0.2, retries={"total_max_attempts": 1}, **config
    )
    return session.create_client("sqs", "eu-west-1", endpoint_url=url, config=settings)


@pytest.mark.parametrize("client", CLIENTS)
def test_refused_connection_is_transient(client: str, nobody: str) -> None:
    found = seen(lambda: CLIENTS[client](nobody))
    assert (found.category, found.code) == (T, "ECONNREFUSED")


@pytest.mark.parametrize("client", CLIENTS)
def test_silence_is_transient(client: str, server: str) -> None:
    found = seen(lambda: CLIENTS[client](f"{server}/hang"))
    assert (found.category, found.code) == (T, "TIMEOUT")


@pytest.mark.parametrize(
    ("client", "how"),
    [*((client, "cut") for client in CLIENTS)]
    + [(client, "short") for client in CLIENTS if client != "botocore"],  # SQS reads what came
)
def test_connection_cut_in_the_middle_is_transient(client: str, how: str, server: str) -> None:
    found = seen(lambda: CLIENTS[client](f"{server}/{how}"))
    assert found.category is T


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    ("number", "category", "code"),
    [
        (socket.EAI_AGAIN, T, "EAI_AGAIN"),
        (socket.EAI_NONAME, Category.EXTERNAL, "EAI_NONAME"),
    ],
)
def test_failed_name_look_up_is_told_by_its_number(
    client: str, number: int, category: Category, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise socket.gaierror(number, "whatever the system says")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    found = seen(lambda: CLIENTS[client]("http://crm.invalid"))
    assert (found.category, found.code) == (category, code)


@pytest.mark.parametrize("client", CLIENTS)
def test_certificate_nobody_vouches_for_is_not_retried(client: str, self_signed: str) -> None:
    found = seen(lambda: CLIENTS[client](f"{self_signed}/200"))
    assert (found.category, found.code) == (A, "CERTIFICATE")


@pytest.mark.parametrize("client", CLIENTS)
def test_tls_towards_a_server_without_it_is_external(client: str, server: str) -> None:
    found = seen(lambda: CLIENTS[client](server.replace("http:", "https:") + "/200"))
    assert (found.category, found.code) == (Category.EXTERNAL, "TLS")


@pytest.mark.parametrize(
    "call",
    [
        lambda: requests.get("crm.test", timeout=60),
        lambda: requests.get("gopher://crm.test", timeout=60),
        lambda: httpx.get("crm.test"),
        lambda: urllib3.request("GET", "gopher://crm.test"),
    ],
    ids=["requests schema", "requests scheme", "httpx", "urllib3"],
)
def test_address_that_is_none_is_the_clients_fault(call: Callable[[], object]) -> None:
    assert seen(call).category is C


def test_exhausted_pool_is_transient(server: str) -> None:
    limits = httpx.Limits(max_connections=1)
    timeout = httpx.Timeout(5, pool=0.01)
    with (
        httpx.Client(limits=limits, timeout=timeout) as client,
        client.stream("GET", f"{server}/200"),
    ):
        found = seen(lambda: client.get(f"{server}/200"))
    assert (found.category, found.code) == (T, "POOL_EXHAUSTED")


def test_answer_that_is_no_json_is_the_third_partys_fault(server: str) -> None:
    response = requests.get(f"{server}/200", timeout=60)
    assert seen(response.json).category is Category.EXTERNAL


def client_error(code: str, status: int, headers: dict[str, str] | None = None) -> Exception:
    """Let botocore parse an SQS error as it does from the network."""
    client = sqs("http://sqs.test")
    body = f'{{"__type": "com.amazonaws.sqs#{code}", "message": "no"}}'.encode()

    def answer(request: object, **_: object) -> object:
        from botocore.awsrequest import AWSResponse

        response = AWSResponse("http://sqs.test", status, {**(headers or {})}, None)
        response._content = body
        return response

    client.meta.events.register("before-send.sqs", answer)  # type: ignore[attr-defined]
    error = raised(client.list_queues)  # type: ignore[attr-defined]
    assert isinstance(error, botocore.exceptions.ClientError)
    return error


@pytest.mark.parametrize(
    ("code", "status", "category"),
    [
        ("ThrottlingException", 400, T),
        ("RequestThrottled", 403, T),
        ("SlowDown", 503, T),
        ("InternalFailure", 500, S),
        ("AccessDeniedException", 400, A),
        ("ExpiredToken", 400, A),
        ("SignatureDoesNotMatch", 403, A),
        ("ConditionalCheckFailedException", 400, Category.CONFLICT),
        ("ResourceAlreadyExistsException", 400, Category.INTEGRITY),
        ("NobodyKnowsThis", 400, C),
        ("NobodyKnowsThis", 409, Category.INTEGRITY),
        ("NobodyKnowsThis", 502, S),
    ],
)
def test_botocore_code_beats_its_status(code: str, status: int, category: Category) -> None:
    found = classify(client_error(code, status), now=NOW)
    assert (found.category, found.code) == (category, code)


def test_botocore_retry_after_is_read() -> None:
    error = client_error("ThrottlingException", 400, {"retry-after": "11"})
    assert classify(error, now=NOW).retry_after == timedelta(seconds=11)


def test_botocore_without_credentials_is_not_authorized(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, "/nonexistent")
    client = botocore.session.Session().create_client("sqs", "eu-west-1")
    found = seen(client.list_queues)
    assert (found.category, found.code) == (A, "CREDENTIALS")


def test_botocore_wrong_parameter_is_the_clients_fault() -> None:
    client = sqs("http://sqs.test")
    found = seen(lambda: client.send_message(QueueUrl=7))  # type: ignore[attr-defined]
    assert (found.category, found.code) == (C, "VALIDATION")
