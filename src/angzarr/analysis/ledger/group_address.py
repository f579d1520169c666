"""Group address: a fingerprint as it goes into addresses and commands. Pure.

Whoever writes a letter chooses its fingerprint: it may have slashes, dots alone, control characters
or markup. In an address, on a command line and in a cursor each group must be found all the same.
"""

from __future__ import annotations

import base64
import re
from typing import Final

#: What needs no other form: our own, and nearly all of others. Dots alone are a way up, and what
#: begins with a dash is an option.
_PLAIN: Final = re.compile(r"(?!\.+\Z|-)[0-9A-Za-z_.:-]{1,64}")
#: Begins what is spelt in another form. No plain one begins so.
_SPELT: Final = "~"


def group_address(fingerprint: str) -> str:
    """Return *fingerprint* if it is plain, else ``~`` and its UTF-8 in URL-safe base64."""
    if _PLAIN.fullmatch(fingerprint):
        return fingerprint
    raw = fingerprint.encode("utf-8", "surrogatepass")
    return _SPELT + base64.urlsafe_b64encode(raw).decode().rstrip("=")


def fingerprint_at(address: str) -> str:
    """Return the fingerprint that *address* stands for; raises ValueError if it is spelt wrong.

    What does not begin with ``~`` is the fingerprint itself.
    """
    if not address.startswith(_SPELT):
        return address
    spelt = address.removeprefix(_SPELT)
    try:
        padded = spelt.encode("ascii") + b"=" * (-len(spelt) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True).decode(
            "utf-8", "surrogatepass"
        )
    except ValueError as error:  # of each of the codecs
        msg = "no group has this address: use ~ and base64, as lists of groups show it"
        raise ValueError(msg) from error
