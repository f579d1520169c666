"""Codes that clients keep in an exception's arguments, and statuses that they keep elsewhere."""
# ruff: noqa: S321 - errors are made, no server is called

from __future__ import annotations

import ftplib
import imaplib
import poplib
import xmlrpc.client
from datetime import UTC, datetime
from types import SimpleNamespace

import aiohttp
import google.auth.exceptions
import pymysql
import pytest
import sqlalchemy.exc
from hypothesis import given
from hypothesis import strategies as st

from angzarr.resilience.category import Category
from angzarr.resilience.taxonomy import classify
from angzarr.resilience.taxonomy_codes import of_reply

T, C, A, U = Category.TRANSIENT, Category.CLIENT, Category.AUTHORIZATION, Category.UNKNOWN


def seen(error):
    found = classify(error, now=datetime(2026, 1, 1, tzinfo=UTC))
    return found.category, found.code


def answered(status, **fields):
    return aiohttp.ClientResponseError(SimpleNamespace(real_url="x"), (), status=status, **fields)


@pytest.mark.parametrize(
    ("number", "category"),
    [
        (1205, T), (1213, T), (1040, T), (2013, T), (1290, T), (1045, A), (1142, A),
        (1062, Category.INTEGRITY), (1451, Category.INTEGRITY), (1406, C), (1146, U), (1054, U),
    ],
)  # fmt: skip
def test_mysql_is_judged_by_its_number_also_inside_sqlalchemy(number, category):
    error = pymysql.err.OperationalError(number, "what it says")
    assert seen(error) == (category, f"MYSQL_{number}")
    wrapped = sqlalchemy.exc.OperationalError("UPDATE …", {}, error)
    assert seen(wrapped) == (category, f"MYSQL_{number}")


def test_a_driver_that_tells_no_number_is_judged_by_its_class_alone():
    assert seen(pymysql.err.InterfaceError("cursor closed")) == (U, "UNKNOWN")


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (ftplib.error_temp("450 busy"), (T, "FTP_450")),
        (ftplib.error_temp("421 too many users"), (T, "FTP_421")),
        (ftplib.error_perm("530 login incorrect"), (A, "FTP_530")),
        (ftplib.error_perm("550 no such file"), (C, "FTP_550")),
        (ftplib.error_reply("no digits"), (U, "UNKNOWN")),
        (imaplib.IMAP4.error(b"[AUTHENTICATIONFAILED] no"), (A, "MAILBOX_AUTHENTICATIONFAILED")),
        (imaplib.IMAP4.error("[UNAVAILABLE] later"), (T, "MAILBOX_UNAVAILABLE")),
        (imaplib.IMAP4.error("[WHATEVER] else"), (U, "UNKNOWN")),
        (imaplib.IMAP4.abort("socket error: EOF"), (T, "CONNECTION")),
        (poplib.error_proto(b"-ERR [IN-USE] locked"), (T, "MAILBOX_IN-USE")),
        (poplib.error_proto(b"-ERR [AUTH] no"), (A, "MAILBOX_AUTH")),
        (poplib.error_proto(), (U, "UNKNOWN")),
    ],
)
def test_ftp_and_mail_boxes_are_judged_by_the_code_of_their_reply(error, found):
    assert seen(error) == found


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (answered(503), (T, "HTTP_503")),
        (answered(401), (A, "HTTP_401")),
        (answered(404), (C, "HTTP_404")),
        (aiohttp.ContentTypeError(SimpleNamespace(real_url="x"), (), status=200),
         (Category.EXTERNAL, "BAD_RESPONSE")),
        (aiohttp.ServerDisconnectedError(), (T, "CONNECTION")),
        (aiohttp.ClientPayloadError("cut"), (T, "CONNECTION")),
        (aiohttp.ServerTimeoutError(), (T, "TIMEOUT")),
        (aiohttp.InvalidURL("stock.internal"), (C, "VALIDATION")),
        (xmlrpc.client.ProtocolError("u", 503, "down", {}), (T, "HTTP_503")),
        (xmlrpc.client.ProtocolError("u", 200, "odd", {}), (U, "UNKNOWN")),
        (xmlrpc.client.Fault(17, "closed"), (C, "REJECTED")),
        (google.auth.exceptions.RefreshError("no"), (A, "CREDENTIALS")),
    ],
)  # fmt: skip
def test_a_status_is_found_where_the_client_keeps_it(error, found):
    assert seen(error) == found


def test_what_aiohttp_says_of_an_answer_that_is_no_http_is_no_status_of_the_other_side():
    error = answered(400, message="Bad status line")
    error.__cause__ = ValueError("Expected HTTP/")
    assert seen(error) == (U, "UNKNOWN")


@pytest.mark.parametrize(
    ("status", "found"),
    [(402, (Category.BUDGET, "HTTP_402")), (429, (T, "HTTP_429")), (200, (U, "UNKNOWN")),
     ("503", (U, "UNKNOWN")), (None, (U, "UNKNOWN"))],
)  # fmt: skip
def test_a_client_of_any_name_may_keep_its_status_in_http_status(status, found):
    class CardError(Exception):
        http_status = status

    assert seen(CardError("declined")) == found


@given(
    st.sampled_from(
        ["pymysql.err.MySQLError", "ftplib.Error", "poplib.error_proto", "imaplib.IMAP4.error"]
    ),
    st.lists(st.one_of(st.none(), st.integers(), st.text(), st.binary()), max_size=3),
)
def test_no_reply_however_odd_raises(path, arguments):
    found = of_reply([path], arguments)
    assert found is None or (isinstance(found[0], Category) and len(found[1]) < 40)
