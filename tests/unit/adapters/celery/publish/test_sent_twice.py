"""A delayed message is sent again where its delay was deleted, and as it was at first."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from amqp.exceptions import NotFound
from celery.app.amqp import AMQP
from kombu import Exchange

from angzarr.adapters.celery.publish.native_delay import ENTRY
from angzarr.events.headers import PAYLOAD
from apps import apps


@pytest.mark.parametrize("checked", [None, "of a copy"])
def test_a_second_send_has_the_claim_check_that_the_first_one_was_given(monkeypatch, checked):
    seen = []

    def send(_producer, _name, message, **_options):
        seen.append(message.headers.get(PAYLOAD))
        if len(seen) == 1:
            message.headers[PAYLOAD] = "made by the first try"  # as OffloadingProducer does
            raise NotFound("no exchange")

    monkeypatch.setattr(AMQP, "_create_task_sender", lambda _self: send)
    headers = {"task": "t", "id": "1"} | ({} if checked is None else {PAYLOAD: checked})
    producer = SimpleNamespace(connection=SimpleNamespace(declared_entities=set()))
    with apps(broker="memory://") as make:
        make().amqp._create_task_sender()(
            producer, "t", SimpleNamespace(headers=headers), exchange=Exchange(ENTRY),
            routing_key=".".join(["0"] * 28 + ["q"]),
        )  # fmt: skip
    assert seen == [checked, checked]
