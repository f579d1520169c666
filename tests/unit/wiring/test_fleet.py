"""What a worker tells its fleet, from its start to its end."""

from __future__ import annotations

import os
import socket

import pytest

from angzarr.errors import ConfigurationError
from angzarr.fleet import Member
from angzarr.wiring import fleet as fleet_wiring
from apps import apps
from polling import wait_until


def sync(event: dict) -> None:
    """Do nothing."""


@pytest.fixture
def app(monkeypatch):
    monkeypatch.setenv("ANGZARR_RELEASE", "v7")
    with apps(store="memory:", broker="memory://", dlq={"backend": "channel"}) as make:
        app = make()
        app.handler("order.placed", name="shop.sync")(sync)
        app.task(name="shop.add")(sync)
        app.finalize(auto=True)
        yield app


@pytest.fixture
def members(app):
    app._runtime.begin_work("threads")
    yield lambda: list(app.ops.fleet().members())
    app._runtime.end_work()


def test_a_worker_is_a_member_from_its_start_to_its_end(app, members):
    (member,) = wait_until(members, "the worker is a member")
    assert member == Member(
        owner=app._runtime.owner,
        host=socket.gethostname(),
        pid=os.getpid(),
        release="v7",
        handlers=("shop.add", "shop.sync"),
        queues=(app.conf.task_default_queue,),
        pool="threads",
        started_at=member.started_at,
    )
    fleet = app.ops.fleet()
    app._runtime.end_work()
    assert list(fleet.members()) == []
    assert [release.name for release in fleet.releases()] == ["v7"]


def test_letters_and_the_fleet_name_the_same_release(app, members):
    (member,) = wait_until(members, "the worker is a member")
    letter_says = app._runtime.executor().failure_policy.letter_builder.version
    assert letter_says == member.release == fleet_wiring.release() == "v7"


def test_a_worker_says_what_it_consumes_at_the_moment(app):
    look = fleet_wiring.membership(app._parts, app._runtime.owner, "solo")._look
    app.amqp.queues.select_add("more")
    assert "more" in look().queues
    app.amqp.queues.deselect("more")
    assert "more" not in look().queues


def test_a_release_that_nobody_named_is_empty(app, monkeypatch):
    monkeypatch.delenv("ANGZARR_RELEASE")
    assert fleet_wiring.membership(app._parts, app._runtime.owner, "solo")._look().release == ""


def test_a_release_of_odd_bytes_can_be_kept_by_every_store(monkeypatch):
    monkeypatch.setenv("ANGZARR_RELEASE", os.fsdecode(b"v\xff7"))
    assert fleet_wiring.release() == "v?7"


def test_an_app_without_a_claim_store_has_no_fleet():
    with apps(broker="amqp://127.0.0.1") as make, pytest.raises(ConfigurationError, match="store"):
        make().ops.fleet()
