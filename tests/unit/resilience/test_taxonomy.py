"""Whose word counts: rules, causes, groups; and what becomes of it."""

from __future__ import annotations

import socket
from datetime import UTC, datetime, timedelta

import grpc
import httpx
import psycopg.errors
import pytest
import redis.exceptions
from hypothesis import given
from hypothesis import strategies as st

from angzarr.errors import ConfigurationError
from angzarr.resilience.taxonomy import (
    ILLNESS,
    Category,
    Classification,
    Rule,
    Verdict,
    VerdictRule,
    classify,
    retryable,
    verdict_for,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
T, C, U = Category.TRANSIENT, Category.CLIENT, Category.UNKNOWN


class PaymentError(Exception):
    """A developer's own error."""


class CardError(PaymentError):
    """A more special one."""


def category(error: BaseException, *scopes: list[Rule], **where: str) -> Category:
    return classify(error, *scopes, now=NOW, **where).category


def rule(matches: object, category: Category, **more: object) -> Rule:
    return Rule(matches=matches, category=category, **more)  # type: ignore[arg-type]


def nested(outer: Exception, inner: BaseException, *, explicitly: bool) -> Exception:
    try:
        try:
            raise inner
        except BaseException as error:
            if explicitly:
                raise outer from error
            raise outer  # noqa: B904 - the implicit context is what is tested
    except Exception as error:
        return error


# ---------------------------------------------------------------------------------------- causes


@pytest.mark.parametrize("explicitly", [True, False])
def test_silent_error_stands_for_its_cause(*, explicitly: bool) -> None:
    error = nested(PaymentError("crm failed"), httpx.ConnectTimeout("slow"), explicitly=explicitly)
    found = classify(error, now=NOW)
    assert (found.category, found.code) == (T, "TIMEOUT")
    assert found.reason == f"httpx.ConnectTimeout: TIMEOUT, cause of {__name__}.PaymentError"


def test_bug_in_an_except_block_stays_a_bug() -> None:
    for bug in (AttributeError("x"), KeyError("x"), TypeError("x"), ValueError("x")):
        assert category(nested(bug, httpx.ConnectTimeout("slow"), explicitly=False)) is U


def test_explicit_cause_speaks_even_for_a_built_in_error() -> None:
    error = nested(ValueError("no rate"), httpx.ConnectTimeout("slow"), explicitly=True)
    assert category(error) is T


def test_cause_that_is_denied_is_not_asked() -> None:
    error = nested(PaymentError(), httpx.ConnectTimeout("slow"), explicitly=False)
    error.__suppress_context__ = True
    assert category(error) is U


def test_outer_word_beats_the_cause() -> None:
    error = nested(psycopg.errors.UniqueViolation(), TimeoutError(), explicitly=True)
    assert category(error) is Category.INTEGRITY


def test_older_error_is_not_taken_for_the_reason_of_a_lost_connection() -> None:
    refused = PermissionError(13, "the cache file")
    error = nested(redis.exceptions.ConnectionError("gone"), refused, explicitly=False)
    assert category(error) is T


def test_network_error_beneath_a_lost_connection_is_more_precise() -> None:
    unknown = socket.gaierror(socket.EAI_NONAME, "who?")
    error = nested(redis.exceptions.ConnectionError("gone"), unknown, explicitly=False)
    assert classify(error, now=NOW).code == "EAI_NONAME"


def test_ring_of_causes_ends() -> None:
    one, two = PaymentError(1), PaymentError(2)
    one.__cause__, two.__cause__ = two, one
    assert category(one) is U
    lost, again = httpx.ConnectError("1"), httpx.ConnectError("2")
    lost.__cause__, again.__cause__ = again, lost
    assert category(lost) is T


@pytest.mark.parametrize(
    ("members", "wanted"),
    [
        ([TimeoutError(), ConnectionResetError()], T),
        ([TimeoutError(), psycopg.errors.UniqueViolation()], Category.INTEGRITY),
        ([TimeoutError(), PaymentError()], U),
        ([TimeoutError(), ExceptionGroup("inner", [FileNotFoundError(2, "no")])], C),
    ],
)
def test_group_is_as_grave_as_its_gravest_member(
    members: list[Exception], wanted: Category
) -> None:
    assert category(ExceptionGroup("many", members)) is wanted


def test_group_waits_for_its_most_patient_member() -> None:
    request = httpx.Request("GET", "http://crm.test")
    members = [
        httpx.HTTPStatusError(
            "busy", request=request, response=httpx.Response(503, headers={"Retry-After": wait})
        )
        for wait in ("3", "8", "5")
    ]
    found = classify(ExceptionGroup("many", members), now=NOW)
    assert found.retry_after == timedelta(seconds=8)


def test_reason_never_quotes_the_text_of_an_error() -> None:
    secret = "postgresql://app:hunter2@db"
    for error in (TimeoutError(secret), PaymentError(secret), OSError(28, secret)):
        assert "hunter2" not in str(classify(error, now=NOW))


class Hostile(Exception):
    """Raises whatever one asks it."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(name)

    @property
    def response(self) -> object:
        raise RuntimeError("response")

    def __str__(self) -> str:
        raise RuntimeError("str")


def test_hostile_error_is_classified_all_the_same() -> None:
    assert category(Hostile()) is U


def test_odd_metadata_of_a_grpc_error_leaves_its_cause_to_speak() -> None:
    class Odd(grpc.RpcError):
        def code(self) -> object:
            raise RuntimeError("no code")

    assert category(nested(Odd(), TimeoutError(), explicitly=True)) is T


@given(
    st.dictionaries(
        st.sampled_from(
            ["response", "status_code", "sqlstate", "pgcode", "orig", "sqlite_errorcode",
             "kwargs", "reason", "code"]
        ),
        st.none() | st.integers() | st.text(max_size=6) | st.dictionaries(st.text(), st.none()),
    )
)  # fmt: skip
def test_any_attributes_are_read_without_raising(attributes: dict[str, object]) -> None:
    error = PaymentError()
    error.__dict__.update(attributes)
    assert isinstance(classify(error, now=NOW), Classification)


# ----------------------------------------------------------------------------------------- rules


def test_rule_overrides_what_is_built_in() -> None:
    assert category(TimeoutError(), [rule(TimeoutError, C)]) is C


def test_rule_by_path_needs_no_import() -> None:
    path = f"{__name__}.PaymentError"
    assert category(CardError(), [rule(path, Category.BUDGET)]) is Category.BUDGET
    assert category(ValueError(), [rule(path, Category.BUDGET)]) is U


def test_nearer_class_beats_its_base_whatever_the_order() -> None:
    rules = [rule(Exception, T), rule(PaymentError, Category.EXTERNAL), rule(CardError, C)]
    for ordered in (rules, rules[::-1]):
        assert category(CardError(), ordered) is C
        assert category(PaymentError(), ordered) is Category.EXTERNAL


def test_question_beats_a_class_and_one_that_raises_is_answered_no() -> None:
    asked = rule(lambda error: error.args[0] == "stolen", Category.AUTHORIZATION)
    rules = [rule(CardError, C), asked]
    assert category(CardError("stolen"), rules) is Category.AUTHORIZATION
    assert category(CardError("empty"), rules) is C
    assert category(CardError(), rules) is C  # args[0] raises IndexError


def test_of_equal_rules_the_first_wins() -> None:
    assert category(CardError(), [rule(CardError, C), rule(CardError, T)]) is C


def test_handler_beats_event_type_beats_app() -> None:
    app = [
        rule(CardError, C),
        rule(Exception, Category.BUDGET, event_type="Paid"),
        rule(Exception, T, handler="shop.pay"),
    ]
    assert category(CardError(), app) is C
    assert category(CardError(), app, event_type="Sent") is C
    assert category(CardError(), app, event_type="Paid") is Category.BUDGET
    assert category(CardError(), app, event_type="Paid", handler="shop.pay") is T


def test_a_handlers_own_rules_beat_the_apps_nearer_ones() -> None:
    own, app = [rule(Exception, T)], [rule(CardError, C)]
    assert category(CardError(), own, app) is T
    assert category(CardError(), [], app) is C


def test_rule_for_a_cause_counts_where_the_outer_says_nothing() -> None:
    error = nested(RuntimeError("wrapped"), CardError(), explicitly=True)
    assert category(error, [rule(CardError, Category.BUDGET)]) is Category.BUDGET


def test_rule_keeps_code_and_wish_of_the_evidence() -> None:
    response = httpx.Response(404, headers={"Retry-After": "4"})
    error = httpx.HTTPStatusError(
        "no", request=httpx.Request("GET", "http://crm.test"), response=response
    )
    found = classify(error, [rule(httpx.HTTPStatusError, T)], now=NOW)
    assert (found.category, found.code) == (T, "HTTP_404")
    assert found.retry_after == timedelta(seconds=4)
    own = rule(httpx.HTTPStatusError, T, code="NOT_YET", retry_after=timedelta(minutes=1))
    found = classify(error, [own], now=NOW)
    assert (found.code, found.retry_after) == ("NOT_YET", timedelta(minutes=1))


def test_rule_by_a_bare_name_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"module\.Class, not 'CardError'"):
        rule("CardError", C)


# -------------------------------------------------------------------------------------- verdicts

RETRIED = {T, Category.CONFLICT, Category.SERVER, Category.EXTERNAL}


@pytest.mark.parametrize("kind", Category)
def test_default_verdict_is_the_one_of_the_spec(kind: Category) -> None:
    assert verdict_for(kind) is (Verdict.RETRY if kind in RETRIED else Verdict.DEAD_LETTER)
    assert retryable(kind) is (kind in RETRIED)


def test_server_error_is_retried_only_where_running_twice_is_harmless() -> None:
    assert verdict_for(Category.SERVER, idempotent=False) is Verdict.DEAD_LETTER
    assert verdict_for(T, idempotent=False) is Verdict.RETRY


def test_skip_is_chosen_by_category_and_event_type() -> None:
    rules = [
        VerdictRule(category=C, verdict=Verdict.SKIP),
        VerdictRule(category=C, verdict=Verdict.DEAD_LETTER, event_type="Paid"),
    ]
    assert verdict_for(C, rules) is Verdict.SKIP
    assert verdict_for(C, rules, event_type="Viewed") is Verdict.SKIP
    assert verdict_for(C, rules, event_type="Paid") is Verdict.DEAD_LETTER
    assert verdict_for(U, rules) is Verdict.DEAD_LETTER


def test_later_verdict_beats_an_earlier_one() -> None:
    rules = [VerdictRule(category=C, verdict=each) for each in (Verdict.SKIP, Verdict.DEAD_LETTER)]
    assert verdict_for(C, rules) is Verdict.DEAD_LETTER


@pytest.mark.parametrize(
    ("kind", "verdict"), [(C, Verdict.RETRY), (T, Verdict.SKIP), (Category.EXTERNAL, Verdict.SKIP)]
)
def test_verdict_without_effect_is_refused(kind: Category, verdict: Verdict) -> None:
    with pytest.raises(ConfigurationError, match=str(kind)):
        VerdictRule(category=kind, verdict=verdict)


def test_only_a_sick_dependency_counts_against_its_breaker() -> None:
    assert {T, Category.SERVER, Category.EXTERNAL} == ILLNESS
