from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.dead_letters.fingerprint import (
    LENGTH,
    fingerprint,
    normal_message,
    normal_stack,
    raised_in_app,
)

STACK = """Traceback (most recent call last):
  File "/srv/releases/{release}/orders.py", line {line}, in sync
    crm.upsert(order)
  File "/usr/lib/crm.py", line 7, in upsert
    raise TimeoutError
TimeoutError
"""


def of(message="timed out", stack="", handler="orders.sync", error_type="TimeoutError"):
    return fingerprint(handler=handler, error_type=error_type, message=message, stack=stack)


def test_deploy_does_not_change_the_group():
    old, new = (STACK.format(release=r, line=n) for r, n in (("17", 12), ("18", 40)))
    assert normal_stack(old) == ["orders.py:sync", "crm.py:upsert"]
    assert of(stack=old) == of(stack=new)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("order 17 not found", "order 18 not found"),
        ("no user 'ann'", "no user 'bob'"),
        ("at 0x7f12ab", "at 0x7f99cd"),
        ("took 3.5 s", "took 12.25 s"),
        (
            "event 5f2b6c1e-58a5-4a3e-9c5a-111111111111",
            "event 00000000-58a5-4a3e-9c5a-222222222222",
        ),
        ("timed out\nrequest 1", "timed out\nrequest 2"),
    ],
)
def test_what_varies_does_not_split_a_group(one, other):
    assert of(one) == of(other)


def test_other_handler_error_or_place_is_another_group():
    elsewhere = STACK.format(release="1", line=1).replace("upsert", "delete")
    groups = {
        of(),
        of(handler="mail"),
        of(error_type="OSError"),
        of("refused"),
        of(stack=elsewhere),
    }
    assert len(groups) == 5


@given(st.text(), st.text())
def test_any_text_has_a_fingerprint(message, stack):
    assert len(of(message, stack)) == LENGTH
    assert "\n" not in normal_message(message)


def test_a_stack_of_nothing_but_line_ends_is_read_at_once():
    assert normal_stack("\n" * 400_000) == []  # minutes, if each line end began a search anew


# -- deploys, hosts and Python releases ------------------------------------------------------

REPORT = """Traceback (most recent call last):
  File "{venv}/site-packages/angzarr/delivery/calling.py", line {line}, in call
    return bound()
           ^^^^^^^
  File "{app}/shop/orders.py", line {line}, in sync
    crm.upsert(order)
  File "{venv}/site-packages/crm_client/http.py", line {line}, in {own}post
    raise_for(answer)
  File "{stdlib}/json/decoder.py", line {line}, in {own}raw_decode
    raise JSONDecodeError
  File "{app}/shop/crm.py", line {line}, in {own}upsert
    raise Refused
shop.crm.Refused: order {number} at 0x{address:x} in {app}/data/{number}.json, id {uuid}
"""
PLACES = st.sampled_from(["/srv/releases/17", "/srv/app", "/home/ann/code", "C:\\app", "/app"])
VENVS = st.sampled_from(
    [
        "/srv/venv/lib/python3.11",
        "/opt/venv/lib64/python3.14t",
        "/usr/lib/python3",
        "C:\\venv\\Lib",
    ]
)
STDLIBS = st.sampled_from(
    [
        "/usr/lib/python3.11",
        "/root/.pyenv/versions/3.13.1/lib/python3.13",
        "C:\\Python312\\Lib",
        "/usr/lib/python312.zip",
    ]
)
MESSAGE = "order {number} at 0x{address:x} in {app}/data/{number}.json, id {uuid}"
deploys = st.fixed_dictionaries(
    {
        "app": PLACES,
        "venv": VENVS,
        "stdlib": STDLIBS,
        "line": st.integers(1, 9999),
        "number": st.integers(0, 10**9),
        "address": st.integers(2**20, 2**47),
        "uuid": st.uuids(),
        "own": st.sampled_from(["", "Client."]),
    }
)


@given(deploys, deploys)
def test_nothing_that_a_deploy_a_host_or_a_python_release_changes_splits_a_group(one, other):
    groups = {of(MESSAGE.format(**deploy), REPORT.format(**deploy)) for deploy in (one, other)}
    assert len(groups) == 1


def test_of_a_stack_the_applications_frames_count_where_there_are_any():
    filled = {"line": 1, "number": 1, "address": 1, "uuid": "", "own": ""}
    places = {"app": "/app", "venv": "/venv/lib/python3.11", "stdlib": "/usr/lib/python3.11"}
    stack = REPORT.format(**filled, **places)
    assert normal_stack(stack) == ["orders.py:sync", "crm.py:upsert"]
    library = "".join(line for line in stack.splitlines(keepends=True) if "/app/" not in line)
    assert normal_stack(library) == ["http.py:post"]
    standard = 'File "/usr/lib/python3.11/json/decoder.py", line 3, in decode\n'
    assert normal_stack(standard) == ["decoder.py:decode"]


@pytest.mark.parametrize(
    ("file", "own"),
    [("/app/shop/orders.py", True), ("/venv/lib/python3.11/site-packages/httpx.py", False)],
)
def test_the_last_frame_tells_whose_code_raised_it(file, own):
    stack = f'File "/app/a.py", line 1, in f\nFile "{file}", line 3, in sync\nKeyError: 1\n'
    assert raised_in_app(stack) is own
    assert raised_in_app("KeyError: 1") is None


@pytest.mark.parametrize("package", ["crm_client", "crm_client.http", "crm_client/http"])
def test_a_package_that_is_named_is_the_application_wherever_it_is_installed(package):
    stack = REPORT.format(
        app="/app", venv="/venv", stdlib="/usr", line=1, number=1, address=1, uuid="", own=""
    )
    assert normal_stack(stack, [package]) == ["http.py:post"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("no module (/usr/lib/x.py)", "no module (/opt/lib/y/x.py)"),
        ("see file:///srv/payloads/ab/cd", "see file:///mnt/payloads/ef/01"),
        (r"open C:\srv\a.csv failed", r"open D:\data\in\b.csv failed"),
    ],
)
def test_a_path_does_not_split_a_group(one, other):
    assert of(one) == of(other)


def test_hosts_and_shares_are_no_paths():
    assert normal_message("HTTPS http://crm/a/b") == "HTTPS http://crm/a/b"
    assert of("3/4 used") == of("1/4 used")
    assert of("read/write failed") != of("list/write failed")
