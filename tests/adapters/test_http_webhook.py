from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta

import pytest
from tests.adapters.webhook_receiver import Receiver, answer, garbage, reset, verify
from tests.contracts.alerts import alert_of, sighting_of
from tests.hand_clock import START, HandClock
from tools.certificates import make_certificates
from tools.polling import wait_until
from tools.tcp_proxy import unused_port

from angzarr.adapters.http.poster import Webhook, signed_headers
from angzarr.analysis.alerts.alert import Fate
from angzarr.analysis.alerts.alert_form import BodyFormat
from angzarr.settings.settings import load
from angzarr.wiring import alerts as alert_wiring
from angzarr.wiring import ledger as ledger_wiring

OLD = "whsec_" + base64.b64encode(b"o" * 32).decode()
NEW = "whsec_" + base64.b64encode(b"n" * 24).decode()


def key_of(secret: str) -> bytes:
    return base64.b64decode(secret.removeprefix("whsec_"))


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def receive():
    made = []

    def make(*fates, **options):
        made.append(Receiver(*fates, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def hook():
    made = []

    def make(url, *, secrets=(OLD,), **options):
        options.setdefault("clock", HandClock())
        keys = [key_of(secret) for secret in secrets]
        made.append(Webhook("ops", url, keys=keys, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def send(hook):
    return hook.send(alert_of())


# -- what is sent ------------------------------------------------------------------------------


def test_an_alert_is_posted_as_json_under_its_id(receive, hook):
    site = receive()
    assert send(hook(site.url)).arrived
    (request,) = site.requests
    assert (request.method, request.path) == ("POST", "/hook?token=s3cret")
    assert request.headers["content-type"] == "application/json"
    assert request.headers["webhook-id"] == alert_of().id
    assert request.headers["webhook-timestamp"] == str(int(START.timestamp()))
    assert request.said["data"]["title"] == alert_of().title


def test_a_receiver_can_verify_it_by_the_specification(receive, hook):
    site = receive()
    send(hook(site.url))
    (request,) = site.requests
    assert verify(request, OLD)
    assert not verify(request, NEW)
    assert not verify(request._replace(body=request.body + b" "), OLD)
    forged = {**request.headers, "webhook-timestamp": "1"}
    assert not verify(request._replace(headers=forged), OLD)


def test_while_secrets_change_a_receiver_may_know_either(receive, hook):
    site = receive()
    send(hook(site.url, secrets=(NEW, OLD)))
    (request,) = site.requests
    assert len(request.headers["webhook-signature"].split(" ")) == 2
    assert verify(request, OLD)
    assert verify(request, NEW)


def test_the_signature_is_that_of_the_specifications_own_example():
    headers = signed_headers(
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        START.fromtimestamp(1614265330, START.tzinfo),
        b'{"test": 2432232314}',
        [key_of("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")],
    )
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_what_is_sent_again_has_the_same_id_and_body(receive, hook):
    site = receive(answer(500), answer(200))
    webhook = hook(site.url)
    assert not send(webhook).arrived
    assert send(webhook).arrived
    first, second = site.requests
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.body == second.body


def test_an_alert_that_cannot_be_written_is_told_as_any_other_problem(hook, monkeypatch):
    def broken(_alert, _form):
        raise OverflowError

    monkeypatch.setattr("angzarr.adapters.http.poster.body_of", broken)
    said = send(hook("http://127.0.0.1:9/"))
    assert (said.arrived, said.ill) == (False, True)
    assert said.problem == "OverflowError while writing it"


def test_slack_needs_no_signature(receive, hook):
    site = receive()
    send(hook(site.url, secrets=(), form=BodyFormat.SLACK))
    (request,) = site.requests
    assert "webhook-signature" not in request.headers
    assert set(request.said) == {"text", "blocks"}


# -- what comes back ---------------------------------------------------------------------------


@pytest.mark.parametrize("code", [200, 201, 204, 299])
def test_every_success_is_delivered(receive, hook, code):
    assert send(hook(receive(answer(code)).url)).arrived


@pytest.mark.parametrize(
    ("code", "ill", "gone"),
    [(400, False, False), (401, False, False), (410, False, True), (429, True, False),
     (500, True, False), (503, True, False)],
)  # fmt: skip
def test_every_other_answer_is_not_delivered(receive, hook, code, ill, gone):
    said = send(hook(receive(answer(code)).url))
    assert not said.arrived
    assert (said.ill, said.gone) == (ill, gone)
    assert said.problem == f"it answered {code}"


@pytest.mark.parametrize(
    ("header", "wish"),
    [("Retry-After: 120", 120.0), ("Retry-After: Thu, 01 Jan 2026 12:01:00 GMT", 60.0),
     ("Retry-After: soon", None), ("X-Nothing: 1", None)],
)  # fmt: skip
def test_what_the_receiver_asks_for_is_heard(receive, hook, header, wish):
    said = send(hook(receive(answer(503, header)).url))
    assert said.retry_after == (None if wish is None else timedelta(seconds=wish))


def test_redirects_are_not_followed(receive, hook):
    other = receive()
    said = send(hook(receive(answer(307, f"Location: {other.url}")).url))
    assert not said.arrived
    assert "redirect" in said.problem
    assert other.requests == []


def test_of_a_huge_body_nothing_is_read(receive, hook):
    site = receive()
    site.fates = [site.endless]
    assert send(hook(site.url)).arrived


def test_an_answer_that_trickles_in_is_given_up(receive, hook):
    site = receive()
    site.fates = [site.drip]
    said = send(hook(site.url, whole=timedelta(seconds=0.3)))
    assert said.problem == "no whole answer within 0.3 s"
    assert said.ill


def test_a_receiver_that_says_nothing_is_given_up(receive, hook):
    site = receive()
    site.fates = [site.mute]
    said = send(hook(site.url, whole=timedelta(seconds=0.2)))
    assert said.problem == "no whole answer within 0.2 s"


@pytest.mark.parametrize("fate", [reset, garbage, answer(99)])
def test_what_is_no_answer_is_not_delivered(receive, hook, fate):
    said = send(hook(receive(fate).url))
    assert not said.arrived
    assert said.ill
    assert said.problem


def test_nobody_there_is_not_delivered(hook):
    said = send(hook(f"http://127.0.0.1:{unused_port()}/x?token=s3cret"))
    assert (said.arrived, said.ill) == (False, True)
    assert "Connection refused" in said.problem


# -- TLS ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("tls"))


def test_a_certificate_that_nobody_vouches_for_is_refused(receive, hook, certificates):
    site = receive(tls=certificates)
    said = send(hook(site.url))
    assert "its certificate is not trusted" in said.problem
    assert site.requests == []


def test_an_authority_of_ones_own_is_trusted(receive, hook, certificates):
    site = receive(tls=certificates)
    assert send(hook(site.url, ca_certs=str(certificates.authority))).arrived


def test_an_answer_that_trickles_in_over_tls_is_given_up(receive, hook, certificates):
    site = receive(tls=certificates)
    site.fates = [site.drip]
    whole = timedelta(seconds=0.3)
    said = send(hook(site.url, ca_certs=str(certificates.authority), whole=whole))
    assert said.problem == "no whole answer within 0.3 s"


# -- the whole way -----------------------------------------------------------------------------


def test_what_was_raised_reaches_a_receiver_that_settings_name(receive, tmp_path, caplog):
    site = receive(answer(500), answer(200))
    ops = {"url": site.url, "secrets": [OLD]}
    settings = load({
        "ledger": f"sqlite:///{tmp_path / 'ledger.db'}",
        "analysis": {"alerts": {"webhooks": {"ops": ops}}},
        "retry": {"policies": {"webhook": {"base": 0.01, "max_delay": 0.01}}},
    })  # fmt: skip
    store = ledger_wiring.open_part(ledger_wiring.ALERTS, settings, "amqp://")
    store.raise_([sighting_of("f1", "log", "ops", raised_at=datetime.now(UTC))])
    threads = alert_wiring.open_threads(settings, "amqp://")
    ops_thread = threads[-1]
    ops_thread.start()
    try:
        wait_until(lambda: store.get_alerts()[0].deliveries[1].fate is Fate.DELIVERED)
    finally:
        ops_thread.end()
        store.close()
    first, second = site.requests
    assert verify(second, OLD)
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert "s3cret" not in caplog.text


# -- secrets -----------------------------------------------------------------------------------


def test_no_problem_and_no_place_shows_an_address_or_a_secret(receive, hook, caplog):
    site = receive(answer(500), answer(307, "Location: http://x.test/?token=s3cret"), reset)
    webhook = hook(site.url)
    shown = [send(webhook).problem for _ in range(3)]
    shown += [webhook.place, repr(webhook), json.dumps(shown), caplog.text]
    for text in shown:
        assert "s3cret" not in text
        assert OLD.removeprefix("whsec_") not in text
    assert webhook.place == site.url.partition("/hook")[0]
