from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.dead_letters.names import (
    arguments_for,
    check_domains,
    domain_of_app,
    queue_name,
    release_of,
    routing_key,
)
from angzarr.errors import InvalidDomainName


@pytest.mark.parametrize(
    ("domain", "name", "key"),
    [
        ("order", "angzarr-dlq-order", "angzarr.dlq.order"),
        ("order.eu", "angzarr-dlq-order-eu", "angzarr.dlq.order.eu"),
        ("", "angzarr-dlq-unknown", "angzarr.dlq.unknown"),
        ("Order_X", "angzarr-dlq-Order_X", "angzarr.dlq.Order_X"),
    ],
)
def test_the_published_names_stay(domain: str, name: str, key: str) -> None:
    assert queue_name(domain) == name
    assert routing_key(domain) == key


@given(st.text(alphabet=st.characters(exclude_categories=()), max_size=200))
def test_any_domain_gets_a_name_that_every_backend_takes(domain: str) -> None:
    assert re.fullmatch(r"angzarr-dlq-[A-Za-z0-9_-]{1,68}", queue_name(domain))
    assert re.fullmatch(r"angzarr\.dlq\.[A-Za-z0-9_.-]{1,68}", routing_key(domain))


def test_foreign_characters_do_not_make_two_domains_one() -> None:
    assert queue_name("a/b") != queue_name("a b") != queue_name("a-b")


def test_a_long_foreign_domain_is_cut_and_told_apart_by_its_hash() -> None:
    one, other = queue_name("d" * 100), queue_name("d" * 101)
    assert one != other
    assert len(one) == len(other) == 80


@given(st.text(max_size=200))
def test_a_name_with_a_suffix_is_no_longer_and_as_distinct(domain: str) -> None:
    plain, fifo = queue_name(domain), queue_name(domain, ".fifo")
    assert re.fullmatch(r"angzarr-dlq-[A-Za-z0-9_-]{1,63}\.fifo", fifo)
    assert fifo == f"{plain}.fifo" or len(plain) > 75


def test_domains_that_would_share_a_queue_are_refused() -> None:
    with pytest.raises(InvalidDomainName, match=r"'order\.eu' and 'order-eu' would share"):
        check_domains(["order.eu", "shop", "order-eu"])


def test_a_bad_domain_is_refused() -> None:
    with pytest.raises(InvalidDomainName, match="'Order'"):
        check_domains(["Order"])


def test_good_domains_pass_even_when_named_twice() -> None:
    check_domains(["order", "order", "shop", "d" * 64])


@pytest.mark.parametrize(
    ("name", "domain"),
    [
        ("shop", "shop"), ("Shop_EU", "shop-eu"), ("proj.celery", "proj-celery"),
        ("3-tier", "tier"), ("a" * 99, "a" * 40), (None, "unknown"), ("", "unknown"),
        ("__main__", "unknown"),
        ("angzarr", "unknown"), ("--", "unknown"), ("\u00e9", "unknown"),
    ],
)  # fmt: skip
def test_an_apps_name_gives_a_domain(name, domain):
    assert domain_of_app(name) == domain


@given(st.text())
def test_whatever_an_app_is_called_its_domain_is_one(name):
    check_domains([domain_of_app(name)])


@pytest.mark.parametrize(
    ("version", "release"), [("4.1.0", 4), ("3.13.7", 3), ("", 0), ("x.1", 0), ("²", 0)]
)
def test_a_server_may_say_any_version(version, release):
    assert release_of({"version": version}) == release
    assert release_of({}) == 0


@pytest.mark.parametrize(
    ("version", "limit"),
    [("4.1.0", {"x-delivery-limit": -1}), ("3.13.7", {}), ("x.1", {}), ("", {})],
)
def test_only_a_release_with_a_limit_of_its_own_is_told_that_there_is_none(version, limit):
    assert arguments_for({"version": version}) == {"x-queue-type": "quorum", **limit}
