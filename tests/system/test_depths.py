"""How many letters nobody reads: told by one worker of a fleet, whichever that is."""

from __future__ import annotations

import os
import signal
import time
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from endurance import soak
from polling import wait_until
from redis_servers import free_port
from system.test_health import HealthSite

pytestmark = [pytest.mark.server("redis"), pytest.mark.server("rabbitmq")]

#: Seconds of looking at what must not come: who asks has done so by then, and tells it.
LOOK = 6


def told(port: int, name: str) -> dict[str, float] | None:
    """Return *name* by domain as the worker at *port* tells it; None: it does not answer yet."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            text = answer.read().decode()
    except OSError:
        return None
    return {
        sample.labels.get("domain", ""): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    }


@pytest.mark.parametrize("store", ["redis", soak("postgresql")])
def test_one_worker_tells_of_unread_letters_and_another_one_once_it_is_dead(
    request, make_site, unique_name, store
):
    site = make_site(make=HealthSite, store=request.getfixturevalue(f"{store}_url"))
    domain, other = f"{unique_name}-batch", free_port()
    site.journal.with_name("ill").touch()
    with site.probed_worker("-Q", domain, pool="threads"):
        for n in range(3):
            site.app.publish(site.module.Batch(n=n), root=str(n))
        written = "event_handler_dlq_total"
        wait_until(lambda: (told(site.port, written) or {}).get("") == 3, "three letters")
    with site.probed_worker(pool="threads") as first:
        wait_until(lambda: told(site.port, "dlq_depth").get(domain) == 3, "it to tell of them")
        assert told(site.port, "dlq_messages_total")[domain] == 3
        with site.begun_worker(pool="threads", ANGZARR_HEALTH__PORT=str(other)) as second:
            wait_until(lambda: told(other, "dlq_depth") is not None, "another worker")
            until = time.monotonic() + LOOK
            while time.monotonic() < until:
                assert told(other, "dlq_depth") == {}, "it asks nobody, and tells nothing"
                time.sleep(0.2)
            os.killpg(first.pid, signal.SIGKILL)
            wait_until(lambda: told(other, "dlq_depth").get(domain) == 3, "it to follow")
            assert second.poll() is None
