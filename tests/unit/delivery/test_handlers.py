"""The registry has each name once; a delivery has a domain, and its letter a queue."""

from __future__ import annotations

import pytest

from angzarr.delivery.handlers import Domains, Handler, Handlers
from angzarr.errors import DuplicateHandler


def handler(name, **options):
    return Handler(name=name, bind=lambda _delivery, _context: lambda: None, **options)


@pytest.fixture
def registry():
    made = Handlers()
    for one in (
        handler("b", event_type="T", domain="order"), handler("a", event_type="T"),
        handler("c", event_type="U", domain="order"), handler("plain"),
    ):  # fmt: skip
        made.add(one)
    return made


def test_every_handler_of_a_type_in_order_of_registration(registry):
    assert [one.name for one in registry.of_type("T")] == ["b", "a"]
    assert registry.of_type("unknown") == ()


def test_a_plain_task_has_a_name_and_takes_no_events(registry):
    assert registry.get("plain").event_type is None
    assert registry.get("gone") is None


def test_a_name_is_taken_once_and_the_first_stays(registry):
    first = registry.get("a")
    with pytest.raises(DuplicateHandler, match="'a' is registered twice"):
        registry.add(handler("a", event_type="U"))
    assert registry.get("a") is first
    assert [one.name for one in registry.of_type("U")] == ["c"]


def test_domains_are_those_that_handlers_name(registry):
    assert {name: [one.name for one in found] for name, found in registry.domains().items()} == {
        "order": ["b", "c"]
    }


def test_all_are_counted_and_listed(registry):
    assert len(registry) == 4
    assert [one.name for one in registry] == ["b", "a", "c", "plain"]


def test_a_handler_cannot_be_changed_after_it_was_checked(registry):
    with pytest.raises(AttributeError):
        registry.get("a").domain = "No Such"


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
