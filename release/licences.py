"""Which licences may be shipped with an Apache-2.0 project, and which of them oblige whom. Pure.

Nothing passes that this module does not name: a licence that was never reviewed stops the release.
"""

from __future__ import annotations

import re

#: They ask for their text and the names of their authors to be kept, and for no more.
PERMISSIVE = frozenset(
    {
        "0BSD",
        "Apache-2.0",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "ISC",
        "MIT",
        "MIT-0",
        "PSF-2.0",
        "Python-2.0",
        "Unlicense",
        "ZPL-2.1",
    }
)
#: (Package, licence) that asks for more → why it may be there all the same.
LOOKED_AT = {
    ("certifi", "MPL-2.0"): "binds changes of its own files; it is shipped unchanged",
    ("orjson", "MPL-2.0"): "binds changes of its own files; it is shipped unchanged",
    ("psycopg", "LGPL-3.0-only"): "imported at run time, unchanged, and replaceable with pip",
    ("psycopg-binary", "LGPL-3.0-only"): "the same; it brings libpq and OpenSSL",
}
#: Package that declares no licence → the one that its own LICENSE file states.
UNDECLARED = {"protobuf": "BSD-3-Clause"}

#: Words of the older classifiers that leave the licence open, and all that it may be is permissive.
OPEN = frozenset({"License :: OSI Approved :: BSD License"})
#: Other words for a licence in the older classifiers → its SPDX id.
CLASSIFIERS = {
    "License :: OSI Approved :: Apache Software License": "Apache-2.0",
    "License :: OSI Approved :: ISC License (ISCL)": "ISC",
    "License :: OSI Approved :: MIT License": "MIT",
    "License :: OSI Approved :: Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "License :: OSI Approved :: Python Software Foundation License": "PSF-2.0",
}

_TOKEN = re.compile(r"\(|\)|[^\s()]+(?: WITH [^\s()]+)?")


def wrong(package: str, declared: list[str]) -> str:
    """Say why *package* with its *declared* licences may not be shipped; "" if it may.

    Several declarations are read as if all held.
    """
    if not declared:
        return f"{package} declares no licence: read its files and name it in release/licences"
    for one in declared:
        if one not in OPEN and not _allowed(CLASSIFIERS.get(one, one), package):
            return f"{package} is under {one}: review it and name it in release/licences.py"
    return ""


def obligations(packages: dict[str, list[str]]) -> list[str]:
    """Return a line for each of *packages* whose licence asks for more than to be named."""
    return sorted(
        f"{package} ({licence}): {reason}"
        for (package, licence), reason in LOOKED_AT.items()
        if package in packages
    )


def _allowed(expression: str, package: str) -> bool:
    """Evaluate an SPDX expression: OR takes one that is allowed, AND needs all."""
    tokens = _TOKEN.findall(expression)[::-1]

    def either() -> bool:
        found = both()
        while tokens and tokens[-1] == "OR":
            tokens.pop()
            found |= both()
        return found

    def both() -> bool:
        found = one()
        while tokens and tokens[-1] == "AND":
            tokens.pop()
            found &= one()
        return found

    def one() -> bool:
        word = tokens.pop()
        if word == "(":
            found = either()
            return tokens.pop() == ")" and found
        return word in PERMISSIVE or (package, word) in LOOKED_AT

    try:
        return either() and not tokens
    except IndexError:  # it ends where more must follow
        return False
