"""Bugs, data, settings and rules in ways that the other themes do not have."""

from __future__ import annotations

import importlib.metadata
import ipaddress
import json
import locale
import re
import struct
import tarfile
import tomllib
import zoneinfo
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from io import BytesIO
from typing import Any

import jinja2
import sqlalchemy as sa
import yaml
from pydantic import BaseModel, TypeAdapter
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from tools.corpus import workshop
from tools.corpus.cases import (
    NEXT_RELEASE,
    RELEASE,
    breaker,
    corrupt,
    defect,
    misconfigured,
    other,
    rare_defect,
    recent,
    rejected,
    well,
)
from tools.corpus.events import OrderPlaced
from tools.corpus.places import folders
from tools.corpus.scenario import ORDER, scenario
from tools.corpus.themes import others

from angzarr import GiveUp
from angzarr.analysis.ledger.entry import FailureClass
from angzarr.errors import RevokedError

FEW = {"group_events": 3, "handler_recent": recent(240, 1)}


# -- bugs ------------------------------------------------------------------------------------


@scenario(defect("nobody waits for what is a coroutine"))
async def awaits_none(order: OrderPlaced) -> None:
    def price(_sku: str) -> None: ...

    await price(order.sku)


@scenario(defect("a generator ends where one more is asked for"))
def ended_generator(_order: OrderPlaced) -> list[int]:
    def lines() -> Iterator[int]:
        yield next(iter(()))

    return list(lines())


@scenario(rare_defect("an empty basket has no last line"))
def empty_basket(_order: OrderPlaced) -> Any:
    return [].pop()


@scenario(defect("the format has a code that no text takes"))
def wrong_format(order: OrderPlaced) -> str:
    return f"{order.sku:d}"


@scenario(defect("the pattern has an open bracket"))
def wrong_pattern(order: OrderPlaced) -> Any:
    return re.match("SKU-[0-9", order.sku)


@scenario(
    defect("the library lost this function in its last release"),
    defect("the pinned release is out", running_releases=(RELEASE, NEXT_RELEASE)),
)
def lost_function(order: OrderPlaced) -> Any:
    return json.read(order.sku)


@scenario(defect("the mail's template asks for what nobody gives it"))
def template_without_value(order: OrderPlaced) -> str:
    template = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=True)
    return template.from_string("Dear {{ customer.name }}").render(order=order)


@scenario(defect("the plug-in of the campaign has a syntax error"))
def broken_plugin(_order: OrderPlaced) -> Any:
    return compile("def price(order)\n    return 1\n", "campaign.py", "exec")


@scenario(rare_defect("it counts days beyond the last year that there is"))
def beyond_the_calendar(_order: OrderPlaced) -> datetime:
    return datetime.max.replace(tzinfo=UTC) + timedelta(days=1)


class Base(DeclarativeBase):
    pass


class Offer(Base):
    __tablename__ = "offers"

    sku: Mapped[str] = mapped_column(primary_key=True)
    price: Mapped[int]


def _database() -> sa.Engine:
    engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([Offer(sku="SKU-7", price=3), Offer(sku="SKU-8", price=3)])
        session.commit()
    return engine


@scenario(defect("it reads a row's column after its session was closed"))
def detached(order: OrderPlaced) -> int:
    with Session(_database()) as session:
        offer = session.get_one(Offer, order.sku)
        session.expire(offer)
    return offer.price


@scenario(defect("the query names a column that was never there"))
def no_such_column_sqlite(_order: OrderPlaced) -> None:
    with _database().connect() as connection:
        connection.execute(sa.text("SELECT pirce FROM offers"))


# -- data ------------------------------------------------------------------------------------


@dataclass
class Line:
    sku: str
    count: int


class Lines(BaseModel):
    lines: list[int]


@scenario(corrupt("the order's line lacks its count"), event={**ORDER, "sku": '{"sku": "7"}'})
def line_incomplete(order: OrderPlaced) -> Line:
    return Line(**json.loads(order.sku))


@scenario(
    corrupt("a count that is a word, three levels deep", **FEW), event={**ORDER, "sku": '["a"]'}
)
def nested_count(order: OrderPlaced) -> list[int]:
    return TypeAdapter(list[int]).validate_json(order.sku)


@scenario(
    corrupt("the address of the customer's printer is none"), event={**ORDER, "sku": "10.0.7"}
)
def no_address(order: OrderPlaced) -> Any:
    return ipaddress.ip_address(order.sku)


@scenario(corrupt("a price that is no number at all"), event={**ORDER, "sku": "nan"})
def not_a_number(order: OrderPlaced) -> int:
    return int(float(order.sku))


@scenario(corrupt("the record of the till is shorter than records are"))
def short_record(_order: OrderPlaced) -> Any:
    return struct.unpack("!IIQ", b"\x00\x01\x02")


@scenario(corrupt("the customer's archive ends too early"))
def no_tar(_order: OrderPlaced) -> Any:
    return tarfile.open(fileobj=BytesIO(b"no archive"))


@scenario(corrupt("the customer's list is no YAML"), event={**ORDER, "sku": "lines: [1, 2"})
def no_yaml(order: OrderPlaced) -> Any:
    return yaml.safe_load(order.sku)


@scenario(corrupt("a time zone that no map has"), event={**ORDER, "customer_id": "Europe/Atlantis"})
def no_such_zone(order: OrderPlaced) -> Any:
    return zoneinfo.ZoneInfo(order.customer_id)


@scenario(corrupt("two rows where one must be: an import doubled that offer"))
def two_rows(_order: OrderPlaced) -> Any:
    with Session(_database()) as session:
        return session.execute(sa.select(Offer).where(Offer.price == 3)).scalar_one()


@scenario(
    corrupt("the date is written as in another country", **FEW), event={**ORDER, "sku": "31/12/26"}
)
def other_date(order: OrderPlaced) -> datetime:
    return datetime.strptime(order.sku, "%Y-%m-%d").replace(tzinfo=UTC)


# -- settings --------------------------------------------------------------------------------


@scenario(misconfigured("the mail's template was not deployed"))
def no_such_template(_order: OrderPlaced) -> Any:
    loader = jinja2.FileSystemLoader("/srv/shop/templates")
    return jinja2.Environment(loader=loader, autoescape=True).get_template("thanks.html")


@scenario(misconfigured("the image lacks the language's data"))
def no_locale(_order: OrderPlaced) -> str:
    return locale.setlocale(locale.LC_MONETARY, "tlh_KL.UTF-8")


@scenario(misconfigured("the settings file of this deployment was written by hand, and wrongly"))
def settings_no_toml(_order: OrderPlaced) -> Any:
    file = folders.fresh() / "shop.toml"
    file.write_text("[payments\nkey = 1\n")
    return tomllib.loads(file.read_text())


@scenario(misconfigured("the package's data is missing in the image"))
def package_not_found(_order: OrderPlaced) -> str:
    return importlib.metadata.version("shop-campaigns")


@scenario(misconfigured("the database's address in our settings is none"))
def no_database_address(_order: OrderPlaced) -> Any:
    return sa.create_engine("orders-db:5432")


@scenario(misconfigured("the driver in our settings is not installed"))
def no_such_driver(_order: OrderPlaced) -> Any:
    return sa.create_engine("postgrse://orders-db/shop")


@scenario(misconfigured("the table is missing: migrations did not run in this database"))
def no_such_table_sqlite(_order: OrderPlaced) -> None:
    with _database().connect() as connection:
        connection.execute(sa.text("SELECT 1 FROM loyalty"))


@scenario(misconfigured("the program is there, and nobody may start it"))
def not_executable(_order: OrderPlaced) -> Any:
    import subprocess

    program = folders.fresh() / "pdf"
    program.write_text("#!/bin/sh\n")
    return subprocess.run([program], check=True)


@scenario(misconfigured("the database file was mounted read-only"))
def read_only_sqlite(_order: OrderPlaced) -> None:
    file = folders.fresh() / "offers.db"
    sa.create_engine(f"sqlite:///{file}").connect().close()
    file.touch()
    with sa.create_engine(f"sqlite:///file:{file}?mode=ro&uri=true").begin() as connection:
        connection.execute(sa.text("CREATE TABLE t (a)"))


# -- rules -----------------------------------------------------------------------------------


class VoucherExpired(Exception):
    __module__ = "shop.vouchers"


class OrderClosedError(ValueError):
    __module__ = "shop.orders"


@scenario(rejected("the voucher has run out: a rule of the shop"))
def voucher_expired(order: OrderPlaced) -> None:
    raise VoucherExpired(f"voucher of {order.customer_id} ended yesterday")


@scenario(rejected("a closed order cannot be changed", group_events=11))
def order_closed(order: OrderPlaced) -> None:
    raise OrderClosedError(f"{order.order_id} is closed")


@scenario(rejected("this offer is there already"))
def offer_exists(order: OrderPlaced) -> None:
    with Session(_database()) as session:
        session.add(Offer(sku=order.sku, price=4))
        session.commit()


@scenario(rejected("the day's report was written before: once is the rule"))
def report_exists(_order: OrderPlaced) -> None:
    report = folders.fresh() / "2026-05-04.csv"
    report.touch()
    report.open("x").close()


@scenario(rejected("the handler gives up on what it may not sell", group_events=40,
                   breakers=breaker("mail", "open", 0.9)))  # fmt: skip
def gives_up_meanwhile(order: OrderPlaced) -> None:
    raise GiveUp(f"{order.sku} may not be sold to minors")


# -- ends ------------------------------------------------------------------------------------


@scenario(
    other(FailureClass.REVOKED, "its order was cancelled by the customer", replays=2),
    road=lambda app, given: workshop.take_one(
        app, given, RevokedError(f"shop.{given.name}[85f4] was revoked")
    ),
)
def revoked(order: OrderPlaced) -> None: ...


@scenario(
    other(
        FailureClass.SEQUENCE_CONFLICT,
        "two tills sold the last piece at once",
        replays=1,
        handler_recent=recent(0, 40),
    ),
    written=lambda: others.binary(others.mismatch("till", "Sell", 40, 41)),
)
def sold_at_once(order: OrderPlaced) -> None: ...


@scenario(
    other(FailureClass.UNKNOWN, "a letter of another language, one word long"),
    written=lambda: others.binary(others.failed("EINVAL", transient=False, retries=1)),
)
def one_word(order: OrderPlaced) -> None: ...


@scenario(
    other(FailureClass.UNKNOWN, "an error without a text, once", handler_recent=recent(35, 1)),
)
def no_text(_order: OrderPlaced) -> None:
    raise Exception


@scenario(
    well("they say it would pass, and it does: others go through", "their-store"),
    written=lambda: others.binary(others.failed("lease lost", transient=True, retries=5)),
)
def their_lease_lost(order: OrderPlaced) -> None: ...
