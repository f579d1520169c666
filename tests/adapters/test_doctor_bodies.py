"""What the doctor sees of bodies in payload stores, in real registers."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.adapters.ageing import age_in_redis, age_in_sql

from angzarr.payloads.collector import PayloadState
from angzarr.payloads.holders import PayloadHold, holding
from apps import apps
from doctoring import examined, found, ids

DAY, NOW = timedelta(days=1), timedelta(0)
OURS = {"bodies-not-registered", "bodies-without-keeper", "bodies-not-deleted", "bodies-held-long"}


def told(app):
    return ids(examined(app)) & OURS


@pytest.fixture
def make_app(redis_url, tmp_path):
    with apps(broker=redis_url) as make:
        yield lambda payloads=(), **given: make(
            payloads={"url": (tmp_path / "bodies").as_uri(), **dict(payloads)},
            **{"ledger": f"sqlite:///{tmp_path / 'ledger.db'}", **given},
        )


def aged(app, span):
    """Let *span* pass for the register of *app*."""
    register = app.ops.payload_holders()
    if app.settings.store:
        age_in_sql(register._engine, span)
    else:
        age_in_redis(register._client, register, span)


@pytest.mark.parametrize("kept", ["beside the broker", "in PostgreSQL"])
def test_bodies_that_stay_are_found(make_app, ledger_url, kept):
    given = {"store": ledger_url} if kept == "in PostgreSQL" else {}
    app = make_app(**given)
    assert told(app) == set()
    register = app.ops.payload_holders()
    uri = holding(register, "message")("s3://b/aa/a", 10)
    aged(app, 401 * DAY)
    assert told(app) == {"bodies-held-long"}
    assert told(make_app({"keep": "500d"}, **given)) == set()
    register.release([PayloadHold(uri, "message")])
    aged(app, 2 * DAY)
    assert told(app) == set(), "an analysis worker will come to it"
    aged(app, timedelta(hours=7))
    (one,) = found(examined(app), "bodies-not-deleted")
    assert one.seen == "1 body should be gone, the first for 2 d"
    register.condemn([uri], PayloadState.FREE, NOW)
    assert told(app) == set()
    aged(app, timedelta(hours=7))
    assert told(app) == {"bodies-not-deleted"}
    register.forget([uri])
    assert told(app) == set()


def test_an_app_that_cannot_register_its_bodies_is_told_so(tmp_path, amqp_url):
    payloads = {"url": (tmp_path / "bodies").as_uri()}
    with apps(broker=amqp_url) as make:
        assert told(make(payloads=payloads)) == {"bodies-not-registered", "bodies-without-keeper"}
        assert told(make(dlq={"payloads": payloads})) >= {"bodies-not-registered"}
        assert told(make()) == set(), "it stores none"
        store = f"sqlite:///{tmp_path / 'claims.db'}"
        assert told(make(payloads=payloads, store=store)) == {"bodies-without-keeper"}
        assert not (tmp_path / "claims.db").exists(), "to look makes nothing"
