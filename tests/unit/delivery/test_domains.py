"""Whose a delivery is, and into whose queue its letter goes."""

from __future__ import annotations

import pytest

from angzarr.delivery.handlers import Domains, Handler

DOMAINS = Domains(read=frozenset({"crm", "billing"}), of_queue={"legacy": "shop-legacy"}.get)


@pytest.mark.parametrize(
    ("of_handler", "of_event", "queue", "of_letter", "of_delivery"),
    [
        ("crm", "billing", "legacy", "crm", "crm"),
        (None, "billing", "legacy", "billing", "billing"),
        (None, "made-up", "legacy", "shop-legacy", "made-up"),
        (None, "made-up", "tasks", "unknown", "made-up"),
        (None, "No Such", "legacy", "shop-legacy", "shop-legacy"),
        (None, "", "tasks", "unknown", "unknown"),
        (None, None, "legacy", "shop-legacy", "shop-legacy"),
        (None, None, "tasks", "unknown", "unknown"),
    ],
)
def test_a_letter_goes_to_no_domain_that_only_an_event_names_and_nobody_reads(
    of_handler, of_event, queue, of_letter, of_delivery
):
    handler = Handler(name="h", bind=None, domain=of_handler)
    assert DOMAINS.of_letter(handler, of_event, queue) == of_letter
    assert DOMAINS.of_delivery(handler, of_event, queue) == of_delivery


def test_without_a_handler_it_is_the_same():
    assert DOMAINS.of_letter(None, "made-up", "legacy") == "shop-legacy"
    assert DOMAINS.of_delivery(None, "made-up", "legacy") == "made-up"
