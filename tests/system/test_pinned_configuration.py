"""A worker that is killed after a first read: its successor, the letter and the replay see it."""

from __future__ import annotations

import os
import uuid
from dataclasses import replace

import pytest

from angzarr.adapters.celery.publish.publisher import CeleryPublisher
from angzarr.analysis.replay.replay import replay_message
from system.conftest import Site


class PricedSite(Site):
    """A site of bills."""

    name = "priced_app"

    def publish(self, n: int, **said: object) -> None:
        self.app.publish(self.module.Bill(n=n, padding=PADDING, **said))

    @property
    def prices(self) -> list[tuple[int, int, int]]:
        """Of each run: which bill, which replay, and the prices that it saw."""
        return [(line["n"], line["replay"], line["prices"]) for line in self.ran("bill")]


def whole(site, letter):
    """*letter* with its body, as a replay fetches it."""
    if letter.payload is None:
        return letter
    body = site.app.ops.open_payload_store().fetch(letter.payload)
    return replace(letter, message=replace(letter.message, body=body), payload=None)


#: Characters that make a body large enough for the store of payloads.
PADDING = "x" * 3_000


@pytest.fixture(params=["redis", "redis, bodies in a store", "amqp", "postgresql"])
def site(request, make_site, unique_name, redis_url, postgresql_url, tmp_path):
    """A site on each broker, whose configurations are in Redis or, on RabbitMQ, in PostgreSQL."""
    said = {"ROAD_PREFIX": unique_name}
    if "store" in request.param:
        said["ANGZARR_PAYLOADS__URL"] = f"file://{tmp_path}/payloads"
        said["ANGZARR_PAYLOADS__OVER"] = "2000"
    if request.param.startswith("redis"):
        said["broker"] = redis_url
    if request.param == "postgresql":
        said["store"] = postgresql_url
    site = make_site(make=PricedSite, **said)
    site.forget_letters("thing", "unknown")
    site.module.put(int(uuid.uuid4().hex[:8], 16))  # other sites may share the store
    return site


def test_what_a_killed_process_read_is_what_every_later_run_sees(site):
    with site.worker():
        site.publish(1, fate="fail")
        site.wait_ran("bill", 2)
        (letter,) = site.letters("thing")
        assert (letter.payload is not None) is ("ANGZARR_PAYLOADS__URL" in os.environ)
        old = site.prices[0][2]
        assert site.prices == [(1, 0, old), (1, 0, old)]
        assert letter.event.config_pins.keys() == {"pricing"}
        site.publish(2)
        site.wait_ran("bill", 3)
        CeleryPublisher(site.app).publish(replay_message(whole(site, letter), 1))
        site.wait_ran("bill", 4)
        assert site.prices[2:] == [(2, 0, old + 1), (1, 1, old)]
