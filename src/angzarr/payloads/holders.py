"""PayloadHolders: who still needs a body that lies in a payload store. A port, and its names (F4).

A body is registered before it is put, with its holder: the message of one event for one handler,
or a letter. It may be deleted once nothing holds it, and never before. Its name is drawn
when its content is registered first, and is never used again once it was condemned. So a
deletion that comes late takes nothing that was put since.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NamedTuple, Protocol

from angzarr.errors import text_of
from angzarr.payloads.store import Namer, PayloadReference, PayloadStore, sha256_of
from angzarr.runtime.failures import LogThrottle

_log = logging.getLogger("angzarr.payloads")

#: Bytes of a generation, which is written in hexadecimal digits (see `store.is_name`).
_GENERATION: Final = 8
#: Characters by which a URI is longer than its address.
GENERATION_LENGTH: Final = 2 * _GENERATION + 1
#: Characters of an address that is registered; a body at a longer one is kept for ever.
MOST_ADDRESS: Final = 1500
#: Characters of the id of a letter that is written out.
_LONGEST_ID: Final = 500
_REGISTERED: Final = re.compile("(?s).+-[0-9a-f]{16}")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: Hex digits of the digest of the arguments that tell two bodies of one event apart.
_DIGITS: Final = 16


class PayloadHold(NamedTuple):
    """A body, by its URI, and one who needs it."""

    uri: str
    holder: str


class PayloadHolders(Protocol):
    """Where holds live, beside the claims; every verb raises StoreUnavailable.

    Each verb is atomic, and safe to send twice. Times are those of the store.
    """

    def hold(self, address: str, size: int, holder: str, /, *, fresh: str) -> str:
        """Note that *holder* needs the body at *address*, and return the URI to put it at.

        It is the URI that this content has already, unless that was condemned, else *fresh*:
        *address*, ``-`` and 16 hexadecimal digits. *address* is the URI that its SHA-256 alone
        would give it, *size* its bytes. Two who register one content first, at once, may get two
        URIs, both of which are looked after.
        """

    def join(self, holds: Sequence[PayloadHold], /) -> list[bool]:
        """Note *holds* of bodies that are registered; False, in order: it is not, or no more."""

    def release(self, holds: Sequence[PayloadHold], /) -> None:
        """End *holds*; those that are unknown, or of unknown bodies, count as ended.

        Who is known by another name holds it still: nothing but a hold's own name ends it.
        """


def message_holder(claim_key: str, replay: int, digest: str) -> str:
    """The holder that the message of an event is for one handler, with all copies of it.

    A replay is another one, and so is a second body under the same id: *digest* is that of the
    arguments, by which the event is claimed.
    """
    return f"{claim_key}#{replay}#{digest[:_DIGITS]}"


def letter_holder(letter_id: str, at: datetime) -> str:
    """The holder that a letter is, in its queue and in the ledger; any id and time make one.

    *at* is when its event was given up; its day counts. An event that fails once more, when its
    claim was forgotten, has a letter of the same id, which is another holder: the end of the first
    one's hold, however late, is not its end. A letter that is made anew for every try to put it
    holds once.
    """
    if len(letter_id) > _LONGEST_ID or not letter_id.isprintable():
        letter_id = f"sha256:{sha256_of(letter_id.encode('utf-8', 'surrogatepass'))}"
    return f"letter:{letter_id}@{_day(at)}"


def _day(at: datetime) -> str:
    """The day of *at* in UTC. Claims are kept for one: who is behind them is of another."""
    try:
        return at.astimezone(UTC).date().isoformat()
    except OverflowError:  # it comes from a queue, and may be any
        return f"{(at - _EPOCH).days} days"


def hold_of(uri: str, holder: str) -> PayloadHold | None:
    """The hold of *holder* on the body at *uri*; None: its URI is none that was registered.

    URIs come from queues. What passes here can be asked of every store.
    """
    return PayloadHold(uri, holder) if _REGISTERED.fullmatch(uri) and _is_plain(uri) else None


def _is_plain(uri: str) -> bool:
    return uri.isprintable() and len(uri) <= MOST_ADDRESS + GENERATION_LENGTH


def _draw() -> str:
    return os.urandom(_GENERATION).hex()


def holding(holders: PayloadHolders, holder: str, draw: Callable[[], str] = _draw) -> Namer:
    """What registers *holder* of a body that is about to be put, and names the body."""

    def name(address: str, size: int) -> str:
        if not address.isprintable() or len(address) > MOST_ADDRESS:
            return address
        return holders.hold(address, size, holder, fresh=f"{address}-{draw()}")

    return name


@dataclass(frozen=True, slots=True)
class BodyRegistration:
    """Registers bodies for those who put them, in the register that *open* gives.

    Where that fails a body is put all the same, without a generation, and is kept for ever: it is
    better to have too many bodies than to refuse a message.
    """

    open: Callable[[], PayloadHolders]
    _seldom: LogThrottle = field(default_factory=LogThrottle, init=False)

    def namer(self, holder: str) -> Namer:
        """What registers *holder* of a body, and names the body; it never raises."""

        def name(address: str, size: int) -> str:
            try:
                return holding(self.open(), holder)(address, size)
            except Exception as error:  # noqa: BLE001 - see above
                self._say(error)
                return address

        return name

    def put_new(self, payload: bytes, store: PayloadStore, holder: str) -> PayloadReference:
        """Put *payload* into *store* for *holder*: one that was sealed, whose bytes are new.

        They are never made again. So what could not be put is held no longer, and deleted if it is
        there all the same. Raises what the store raises.
        """
        holds: list[PayloadHold] = []
        register = self.namer(holder)

        def name(address: str, size: int) -> str:
            uri = register(address, size)
            holds.extend(hold for hold in [hold_of(uri, holder)] if hold)
            return uri

        try:
            return store.put(payload, name)
        except Exception:
            self._release(holds)
            raise

    def _release(self, holds: Sequence[PayloadHold]) -> None:
        try:
            self.open().release(holds)
        except Exception as error:  # noqa: BLE001 - what was raised by the store tells more
            self._say(error)

    def joins(self, hold: PayloadHold) -> bool:
        """True if *hold* is noted; False: its body must be put anew, by `namer`. Never raises."""
        try:
            return all(self.open().join([hold]))
        except Exception:  # noqa: BLE001 - see above; who puts it anew says why
            return False

    def join_replay(self, hold: PayloadHold) -> None:
        """Note *hold*, of a replay whose letter holds the same body; never raises.

        Where that fails the body is held by the letter alone. It may go before the replay is
        handled, if the letter's entry is removed, or has another letter, and the grace is over.
        """
        try:
            self.open().join([hold])
        except Exception as error:  # noqa: BLE001 - see above
            if self._seldom.now("replay"):
                _log.warning(
                    "replay_holds_nothing: only its letter holds its body, until the entry is"
                    " removed: %s",
                    text_of(error),
                )

    def _say(self, error: Exception) -> None:
        if self._seldom.now("unregistered"):
            _log.warning("payload_not_registered: its body is kept for ever: %s", text_of(error))


def address_of(uri: str) -> str:
    """The address of the body at *uri*, which was named by `PayloadHolders.hold`."""
    return uri[:-GENERATION_LENGTH]
