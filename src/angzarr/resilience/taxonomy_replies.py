"""Replies whose code clients keep in an exception's arguments: MySQL, FTP, mail boxes. Pure.

The code is the protocol's own, never a word of the text that follows it: MySQL's error number,
FTP's three digits (RFC 959, 4.2), what POP and IMAP put in brackets (RFC 2449, 5530).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from angzarr.resilience.category import Category

_T, _S, _C = Category.TRANSIENT, Category.SERVER, Category.CLIENT
_I, _A, _U = Category.INTEGRITY, Category.AUTHORIZATION, Category.UNKNOWN

#: MySQL's drivers, which all give the number as their first argument.
_MYSQL_DRIVERS: Final = frozenset(
    {"pymysql.err.MySQLError", "MySQLdb._exceptions.MySQLError", "mysql.connector.errors.Error"}
)
_MOST: Final = 0xFFFF
#: MySQL's error numbers (its manual, "Server Error Message Reference" and "Client …").
_MYSQL_NUMBERS: Final = {
    # too many connections, out of resources; shutting down; timed out, reset, gone, lost; lock
    # wait, deadlock; a replica or a server in a failover; the query's time is over; disk full
    _T: (
        "1040 1041 1203 1226 1053 1077 1129 1158 1159 1160 1161 1184 2002 2003 2006 2013 2055 "
        "1205 1213 1290 1836 1792 3024 1317 1969 1021 1114"
    ),
    _S: "1030 1033 1034 1105 1194",
    # a user, a password, a right, a TLS that is demanded
    _A: "1044 1045 1142 1143 1227 1370 1698 1820 1862 3118 3159",
    # duplicates, foreign keys, checks
    _I: "1022 1062 1169 1216 1217 1451 1452 1557 1586 3819 4025",
    # what a column cannot hold, or a packet
    _C: "1048 1153 1264 1265 1292 1364 1366 1406 1411 3140 3156",
}
_MYSQL: Final = {
    int(number): category
    for category, numbers in _MYSQL_NUMBERS.items()
    for number in numbers.split()
}

#: FTP's replies that say who may not log in.
_FTP_LOGIN: Final = frozenset({530, 532})

#: Codes in brackets: those of IMAP, then those of POP.
_BRACKETED: Final = {
    "UNAVAILABLE": _T, "INUSE": _T, "LIMIT": _T, "SERVERBUG": _S, "CORRUPTION": _S,
    "AUTHENTICATIONFAILED": _A, "AUTHORIZATIONFAILED": _A, "EXPIRED": _A, "PRIVACYREQUIRED": _A,
    "CONTACTADMIN": _A, "NOPERM": _A, "OVERQUOTA": Category.BUDGET, "ALREADYEXISTS": _I,
    "NONEXISTENT": _C, "CLIENTBUG": _C, "CANNOT": _C,
    "IN-USE": _T, "LOGIN-DELAY": _T, "SYS/TEMP": _T, "SYS/PERM": _S, "AUTH": _A,
}  # fmt: skip
_MAIL_BOXES: Final = frozenset({"poplib.error_proto", "imaplib.IMAP4.error"})
_IN_BRACKETS: Final = re.compile(r"\[([A-Z/-]{2,24})")


def of_reply(paths: Sequence[str], arguments: Sequence[Any]) -> tuple[Category, str] | None:
    """Return category and code of what an exception of the classes *paths* was raised with."""
    first = arguments[0] if arguments else None
    if isinstance(first, int) and not _MYSQL_DRIVERS.isdisjoint(paths):
        return (_MYSQL.get(first, _U), f"MYSQL_{first}") if 0 < first <= _MOST else None
    if "ftplib.Error" in paths:
        return _of_ftp(str(first)[:3])
    if not _MAIL_BOXES.isdisjoint(paths):
        return _of_mail_box(first) or _of_lost_box(paths)
    return None


def _of_ftp(digits: str) -> tuple[Category, str] | None:
    """4yz passes by itself, 5yz stays."""
    if not (digits.isascii() and digits.isdigit()):
        return None
    category = {"4": _T, "5": _C}.get(digits[0], _U)
    return _A if int(digits) in _FTP_LOGIN else category, f"FTP_{digits}"


def _of_lost_box(paths: Sequence[str]) -> tuple[Category, str] | None:
    """`abort`: the line is gone or out of step, and a new one is to be opened."""
    return (_T, "CONNECTION") if "imaplib.IMAP4.abort" in paths else None


def _of_mail_box(said: Any) -> tuple[Category, str] | None:
    text = said.decode("ascii", "replace") if isinstance(said, bytes) else str(said)
    found = _IN_BRACKETS.search(text[:200])
    category = _BRACKETED.get(found[1]) if found else None
    return (category, f"MAILBOX_{found[1]}") if found and category else None
