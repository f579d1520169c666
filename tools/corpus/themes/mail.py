"""Mail servers that are down, full, or say no."""

from __future__ import annotations

import smtplib

from tools.corpus.cases import both, ill, misconfigured, rejected
from tools.corpus.events import OrderPlaced
from tools.corpus.places import talk, web
from tools.corpus.scenario import scenario


def _mail(*lines: str) -> smtplib.SMTP:
    port = talk.saying("220 mail.example ESMTP", *lines)
    return smtplib.SMTP(web.LOOPBACK, port, local_hostname="shop", timeout=30)


@scenario(misconfigured("the mail server does not know our password"))
def login_refused(_order: OrderPlaced) -> None:
    with _mail(
        "250-mail.example\r\n250 AUTH PLAIN", "535 5.7.8 bad credentials", "221 bye"
    ) as mail:
        mail.login("shop", "wrong")


@scenario(both("mail", "the mail server has no room left", "it has room again"))
def server_full(_order: OrderPlaced) -> None:
    said = ("250 mail.example", "250 ok", "250 ok", "452 4.3.1 insufficient storage")
    with _mail(*said, "221 bye") as mail:
        mail.sendmail("shop@example.org", ["c@example.org"], "Thanks")


@scenario(rejected("that customer's mailbox does not exist"))
def no_such_mailbox(_order: OrderPlaced) -> None:
    said = ("250 mail.example", "250 ok", "550 5.1.1 no such user", "250 ok", "221 bye")
    with _mail(*said) as mail:
        mail.sendmail("shop@example.org", ["c@example.org"], "Thanks")


@scenario(ill("the mail server closes lines at once", "mail"))
def hangs_up(_order: OrderPlaced) -> None:
    with _mail() as mail:
        mail.ehlo()
