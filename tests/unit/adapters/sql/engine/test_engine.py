from __future__ import annotations

import sqlite3

import psycopg
import pytest
from sqlalchemy import make_url, text

from angzarr.adapters.sql.engine.engine import build_engine, in_transaction
from angzarr.adapters.sql.engine.error_hints import describe_error
from angzarr.errors import ConfigurationError, StoreUnavailable

POSTGRESQL = make_url("postgresql+psycopg://ann@db/angzarr")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://somebody:s3cret@127.0.0.1:1/angzarr",
        "postgresql://somebody@127.0.0.1:1/angzarr?password=s3cret&sslpassword=s3cret",
    ],
)
def test_database_away_is_told_with_its_address_and_without_its_secrets(url):
    engine = build_engine(url)
    with pytest.raises(
        StoreUnavailable, match=r"somebody.*@127\.0\.0\.1:1/angzarr"
    ) as describe_error:
        in_transaction(engine, lambda connection: connection.execute(text("SELECT 1")))
    assert "s3cret" not in str(describe_error.value)


def why_away(url, statement="SELECT 1"):
    engine = build_engine(url)
    with pytest.raises(StoreUnavailable) as found:
        in_transaction(engine, lambda connection: connection.execute(text(statement)))
    engine.dispose()
    return str(found.value)


def test_a_server_that_refuses_is_one_line_that_says_what_to_check():
    said = why_away("postgresql://somebody@127.0.0.1:1/angzarr")
    assert said.isprintable()
    assert "Connection refused" in said
    assert said.endswith("(check host and port of the address, and that the server runs)")


def test_a_missing_folder_of_sqlite_says_what_to_make(tmp_path):
    said = why_away(f"sqlite:///{tmp_path}/missing/angzarr.db")
    assert f"(make the folder of {tmp_path}/missing/angzarr.db, and" in said


def test_a_file_that_is_no_database_says_so(tmp_path):
    (tmp_path / "angzarr.db").write_text("no database, but long enough to be looked at" * 20)
    said = why_away(f"sqlite:///{tmp_path}/angzarr.db")
    assert "file is not a database (check that the path is an SQLite database" in said


def of_sqlite(name):
    error = sqlite3.OperationalError("it fails")
    error.sqlite_errorname = name
    return error


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("SQLITE_READONLY_DIRECTORY", "let the user of this process write to /var/a.db"),
        ("SQLITE_READONLY_DBMOVED", "/var/a.db was moved or replaced"),
        ("SQLITE_FULL", "make room on the disk"),
        ("SQLITE_BUSY", ""),
    ],
)
def test_what_sqlite_says_comes_with_what_to_do(name, cure):
    said = describe_error(of_sqlite(name), make_url("sqlite:////var/a.db"))
    assert said == "it fails" if not cure else f"it fails ({cure}" in said


@pytest.mark.parametrize(
    ("error", "cure"),
    [
        ('FATAL: database "x" does not exist', "CREATE DATABASE"),
        ('FATAL: permission denied for database "x"', "GRANT"),
        ('FATAL: role "x" does not exist', "CREATE ROLE"),
        ('FATAL: role "x" is not permitted to log in', "ALTER ROLE … LOGIN"),
        ('FATAL: password authentication failed for user "x"', "check the user and the password"),
        ('FATAL: Peer authentication failed for user "x"', "check the user and the password"),
        (
            'FATAL: pg_hba.conf rejects connection for host "h", database "y"',
            "server's pg_hba",
        ),
        ('FATAL: no pg_hba.conf entry for host "h", user "x", database "y"', "server's pg_hba"),
        ('FATAL: too many connections for role "x"', "ALTER ROLE … CONNECTION LIMIT"),
        ('FATAL: too many connections for database "x"', "ALTER DATABASE … CONNECTION LIMIT"),
        ('FATAL: database "x" is not currently accepting connections', "ALLOW_CONNECTIONS"),
        ("FATAL: sorry, too many clients already", "raise max_connections"),
        ('on socket "/tmp/s" failed: No such file or directory', "check host and port"),
    ],
)
def test_what_a_connect_meets_comes_with_what_to_do(error, cure):
    said = describe_error(psycopg.OperationalError(f"connection failed:\n\t{error}\n"), POSTGRESQL)
    assert said.startswith(f"connection failed: {error} (")
    assert cure in said


@pytest.mark.parametrize(
    ("error", "cure"),
    [
        (psycopg.errors.InsufficientPrivilege("permission denied for table x"), "GRANT"),
        (psycopg.errors.InsufficientPrivilege("must be owner of table x"), "let its owner do it"),
        (psycopg.errors.UndefinedTable('relation "x" does not exist'), "create tables"),
        (psycopg.errors.DiskFull("no space left"), "make room"),
    ],
)
def test_what_a_statement_meets_comes_with_what_to_do(error, cure):
    assert cure in describe_error(error, POSTGRESQL)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("odd\n\tthing\x1b[2J", "odd thing\ufffd[2J"),
        *[
            (text, text)
            for text in (
                'FATAL: cannot connect to invalid database "x" HINT: Use DROP DATABASE',
                'could not open certificate file "x.crt": No such file or directory',
                'root certificate file "x.crt" does not exist',
                "FATAL: the database system is starting up",
            )
        ],
    ],
)
def test_an_error_without_advice_of_ours_is_one_line_alone(error, said):
    assert describe_error(psycopg.OperationalError(error), POSTGRESQL) == said


@pytest.mark.parametrize("scheme", ["postgres", "mysql"])
def test_a_wrong_scheme_names_the_documented_form(scheme):
    with pytest.raises(ConfigurationError, match=rf"postgresql\+psycopg://host/name, not {scheme}"):
        build_engine(f"{scheme}://a/b")
