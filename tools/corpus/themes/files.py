"""Files: disks that are full, rights that are missing, names that lead nowhere."""

from __future__ import annotations

import os
import resource
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tools.corpus.cases import defect, ill, misconfigured, unseen, well
from tools.corpus.events import OrderPlaced
from tools.corpus.places import folders
from tools.corpus.scenario import scenario

DISK = "archive-disk"


@contextmanager
def nobody() -> Iterator[None]:
    """Have no rights meanwhile, where the tests run as root, whom nothing is denied."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@scenario(
    ill("the disk is full", DISK),
    unseen("the disk is full; no breaker watches it", handler_recent={"handled": 0, "failed": 30}),
    well("it was full, and somebody cleared it", DISK, group_events=12),
)
def disk_full(order: OrderPlaced) -> None:
    with Path("/dev/full").open("w") as file:
        file.write(order.sku)


@scenario(misconfigured("the folder's rights are wrong since the last deployment"))
def no_rights(order: OrderPlaced) -> None:
    report = folders.fresh() / "report.csv"
    report.touch(mode=0o400)
    with nobody():
        report.write_text(order.sku)


@scenario(misconfigured("the archive's folder was never made"))
def no_folder(order: OrderPlaced) -> None:
    (folders.fresh() / "archive" / f"{order.order_id}.json").write_text("{}")


@scenario(misconfigured("the path in our settings is a folder where a file belongs"))
def is_a_folder(_order: OrderPlaced) -> None:
    Path("/etc").read_text()


@scenario(unseen("other work holds all file handles of this process", group_events=30))
def too_many_files(_order: OrderPlaced) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
    with ExitStack() as held:
        try:
            while True:
                held.enter_context(open("/dev/null"))  # noqa: PTH123 - none is read
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@scenario(misconfigured("the program that makes the PDF is not installed on this host"))
def missing_program(_order: OrderPlaced) -> None:
    subprocess.run(["wkhtmltopdf-of-the-shop", "a", "b"], check=True)


@scenario(
    unseen("the program that makes the PDF did not end in time: the host is overloaded"),
    well("it did not end in time; the host has rest again", "pdf", group_events=4),
)
def program_too_slow(_order: OrderPlaced) -> None:
    subprocess.run(["sleep", "5"], check=True, timeout=0.1)


@scenario(defect("it calls the program with an option that the program never had"))
def program_fails(_order: OrderPlaced) -> None:
    subprocess.run(["ls", "--no-such-option"], check=True, capture_output=True)


@scenario(unseen("another process holds the SQLite file for long"))
def sqlite_locked(_order: OrderPlaced) -> None:
    with tempfile.TemporaryDirectory(prefix="corpus-") as folder:
        ours, other = (sqlite3.connect(f"{folder}/s.db", timeout=0.05) for _ in range(2))
        other.execute("BEGIN EXCLUSIVE")
        try:
            ours.execute("CREATE TABLE t (a)")
        finally:
            ours.close()
            other.close()


@scenario(misconfigured("the SQLite file lies in a folder that does not exist"))
def sqlite_no_folder(_order: OrderPlaced) -> None:
    sqlite3.connect(folders.fresh() / "archive" / "s.db").close()


@scenario(ill("the disk breaks: it says so on every write", DISK))
def disk_broken(_order: OrderPlaced) -> None:
    with Path("/proc/self/mem").open("rb") as memory:
        memory.read(1)  # the kernel answers EIO where there is no memory
