"""Mail boxes, FTP and bare lines by Python's own clients."""

from __future__ import annotations

import ftplib
import imaplib
import poplib
import smtplib
import socket
import ssl
import xmlrpc.client

from tools.corpus.cases import both, ill, misconfigured, rejected, well
from tools.corpus.events import OrderPlaced
from tools.corpus.normal import show_port
from tools.corpus.places import talk, web
from tools.corpus.scenario import scenario


@scenario(misconfigured("the mail box does not know our login"))
def imap_login(_order: OrderPlaced) -> None:
    with imaplib.IMAP4(web.LOOPBACK, _imap("NO [AUTHENTICATIONFAILED] Invalid credentials")) as box:
        box.login("shop", "wrong")


@scenario(ill("the mail server hangs up on us", "mail"))
def imap_gone(_order: OrderPlaced) -> None:
    imaplib.IMAP4(web.LOOPBACK, talk.saying(shown=1143), timeout=30)


@scenario(misconfigured("the mail box does not know our login, by POP"))
def pop_login(_order: OrderPlaced) -> None:
    port = talk.saying("+OK ready", "+OK", "-ERR [AUTH] invalid login", shown=1110)
    box = poplib.POP3(web.LOOPBACK, port, timeout=30)
    box.user("shop")
    box.pass_("wrong")


@scenario(well("the file server was busy for a minute", "their-ftp"))
def ftp_busy(_order: OrderPlaced) -> None:
    port = talk.saying("220 ready", "230 in", "450 file busy, try again", shown=2121)
    ftp = ftplib.FTP(timeout=30)
    ftp.connect(web.LOOPBACK, port)
    ftp.login("shop", "x")
    ftp.delete("orders.csv")


@scenario(misconfigured("we may not write into the folder that our settings name"))
def ftp_may_not(_order: OrderPlaced) -> None:
    port = talk.saying("220 ready", "230 in", "550 /in: permission denied", shown=2121)
    ftp = ftplib.FTP(timeout=30)
    ftp.connect(web.LOOPBACK, port)
    ftp.login("shop", "x")
    ftp.cwd("/in")


@scenario(rejected("the customer's address is refused; others are taken"))
def recipient_refused(order: OrderPlaced) -> None:
    port = talk.saying(
        "220 mail", "250 mail", "250 ok", "550 5.1.1 no such user", "250 ok", shown=2525
    )
    with smtplib.SMTP(web.LOOPBACK, port, local_hostname="shop", timeout=30) as mail:
        mail.sendmail("shop@shop.example", f"{order.customer_id}@home.example", "Thank you")


@scenario(misconfigured("the mail server offers no TLS, and our settings want it"))
def no_starttls(_order: OrderPlaced) -> None:
    port = talk.saying("220 mail", "250 mail", "221 bye", shown=2525)
    with smtplib.SMTP(web.LOOPBACK, port, local_hostname="shop", timeout=30) as mail:
        mail.starttls()


@scenario(misconfigured("the mail server knows no log-in, and our settings have one"))
def no_auth(_order: OrderPlaced) -> None:
    port = talk.saying("220 mail", "250 mail", "221 bye", shown=2525)
    with smtplib.SMTP(web.LOOPBACK, port, local_hostname="shop", timeout=30) as mail:
        mail.login("shop", "x")


@scenario(both("erp", "the peer ends the line during the handshake", "it was mended"))
def tls_cut(_order: OrderPlaced) -> None:
    with socket.create_connection((web.LOOPBACK, talk.resetting()), timeout=30) as line:
        ssl.create_default_context().wrap_socket(line, server_hostname="erp.example")


@scenario(both("erp", "it is being deployed", "it is deployed"))
def xmlrpc_unavailable(_order: OrderPlaced) -> None:
    xmlrpc.client.ServerProxy(web.url("/RPC2", 503)).orders.add(1)


@scenario(rejected("their rule: a fault of their application"))
def xmlrpc_fault(_order: OrderPlaced) -> None:
    body = xmlrpc.client.dumps(xmlrpc.client.Fault(17, "order is closed")).encode()
    xml = {"Content-Type": "text/xml"}
    xmlrpc.client.ServerProxy(web.url("/RPC3", body=body, headers=xml)).orders.add(1)


def _imap(answer: str) -> int:
    """Return the port of a mail box that answers the log-in so, with the tag that it is given."""
    import re
    import threading

    listening = socket.socket()
    listening.bind((web.LOOPBACK, 0))
    listening.listen()

    def talks() -> None:
        with listening, listening.accept()[0] as line:
            line.sendall(b"* OK ready\r\n")
            while said := line.recv(4096):
                tag = re.split(rb"\s", said)[0].decode()
                if b"CAPABILITY" in said:
                    line.sendall(f"* CAPABILITY IMAP4rev1\r\n{tag} OK done\r\n".encode())
                elif b"LOGOUT" in said:
                    line.sendall(f"* BYE\r\n{tag} OK done\r\n".encode())
                else:
                    line.sendall(f"{tag} {answer}\r\n".encode())

    threading.Thread(target=talks, daemon=True).start()
    port: int = listening.getsockname()[1]
    show_port(port, 1143)
    return port
