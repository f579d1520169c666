"""Damaged: what becomes of an envelope that cannot be read. It is never just dropped (D7)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from kombu.utils.imports import symbol_by_name

from angzarr.adapters.redis.link import Link, Script
from angzarr.adapters.redis.session import AWAY, LONGEST_JOIN, Session
from angzarr.adapters.redis.step import Fetched
from angzarr.errors import LetterTooLarge
from angzarr.events.received import ENVELOPE, DamagedEnvelope, check_envelope
from angzarr.runtime.failures import LogThrottle, is_machine_fault
from angzarr.runtime.json_bounds import TooMuch, check_json
from angzarr.runtime.json_reader import read_json

_log = logging.getLogger("angzarr.transport")

#: Takes the raw bytes, the queue and what was wrong; whatever it raises, it is called again, but
#: for LetterTooLarge, which says that this is in vain: the message is set aside.
OnDamaged = Callable[[bytes, str, Exception], None]

_SET_ASIDE = Script("set_aside.lua", frees=True)
#: Seconds between two tries to hand one over.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
#: Messages in hand, each with a thread, from which on no others are fetched.
ENOUGH_IN_HAND = 64


class Damaged:
    """Hands damaged messages over, or sets them aside in ``angzarr:damaged:<queue>``."""

    def __init__(self, link: Link, prefix: str, hand_over: OnDamaged | str | None) -> None:
        self._link = link
        self._prefix = prefix
        self._hand_over: OnDamaged | None = symbol_by_name(hand_over) if hand_over else None
        self._closing = threading.Event()
        self._seldom = LogThrottle()
        self._in_hand: dict[str, threading.Thread] = {}

    def take(self, fetched: Fetched, session: Session | None, error: Exception) -> None:
        """Let *fetched* go once it is safe elsewhere; the consumer goes on at once."""
        if self._hand_over is None:
            try:
                self._set_aside(fetched, session, error)
            except AWAY as away:
                if self._seldom.now():
                    _log.warning("damaged_message: not set aside yet (%s)", away)
            else:
                return
        self._in_hand[fetched.tag] = thread = threading.Thread(
            target=self._keep_handing_over,
            args=(fetched, session, error),
            name="angzarr-damaged",
            daemon=True,
        )
        thread.start()

    @property
    def is_full(self) -> bool:
        """Whether so many are in hand that no more messages may be fetched."""
        return len(self._in_hand) >= ENOUGH_IN_HAND

    def tags(self) -> list[str]:
        """The tags of what is being handed over."""
        return list(self._in_hand)

    def close(self) -> None:
        """Stop trying; what was not handed over goes back with its session, or is put back."""
        self._closing.set()
        for thread in list(self._in_hand.values()):
            thread.join(LONGEST_JOIN)

    def _set_aside(self, fetched: Fetched, session: Session | None, error: Exception) -> None:
        place = f"{self._prefix}angzarr:damaged:{fetched.queue}"
        if session is None:
            self._link.execute_once("LPUSH", place, fetched.raw)
        else:
            keys = (session.keys.unacked, place)
            self._link.run(_SET_ASIDE, keys, fetched.tag, fetched.raw)
        _log.error("damaged_message: set aside in %s as it is (%s)", place, error)

    def _keep_handing_over(
        self, fetched: Fetched, session: Session | None, error: Exception
    ) -> None:
        pause = FIRST_PAUSE
        while not self._closing.is_set():
            try:
                self._try_to_hand_over(fetched, session, error)
            except Exception:  # noqa: BLE001 - whatever is away, the message must not be lost
                _log.exception("damaged_message: not handed over yet, tried again in %s s", pause)
                self._closing.wait(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
            else:
                self._in_hand.pop(fetched.tag, None)
                return
        if session is None:
            self._link.execute_once("RPUSH", fetched.origin, fetched.raw)

    def _try_to_hand_over(
        self, fetched: Fetched, session: Session | None, error: Exception
    ) -> None:
        if self._hand_over is None:
            self._set_aside(fetched, session, error)
            return
        try:
            self._hand_over(fetched.raw, fetched.queue, error)
        except LetterTooLarge as in_vain:
            self._set_aside(fetched, session, in_vain)
            return
        if session is not None:
            self._link.execute("HDEL", session.keys.unacked, fetched.tag)


def read(raw: bytes, loads: Callable[[str], Any]) -> dict[str, Any]:
    """The envelope; raises DamagedEnvelope, saying what is wrong.

    What kombu needs to deliver it, and what stock kombu needs to acknowledge it, must be there.
    """
    try:
        check_json(raw, ENVELOPE)
        # kombu writes dates and the like as {"__type__": …}; its own reader is needed for those.
        envelope = read_json(raw, loads, key=b"__type__")
    except TooMuch as error:
        msg = f"the envelope has {error}"
        raise DamagedEnvelope(msg) from error
    except Exception as error:  # what makes a date of anybody's text raises anything
        if is_machine_fault(error):
            raise
        msg = f"the envelope is not JSON ({error!s:.200})"
        raise DamagedEnvelope(msg) from error
    if not isinstance(envelope, dict) or not isinstance(envelope.get("properties"), dict):
        msg = "the envelope has no properties"
        raise DamagedEnvelope(msg)
    properties = envelope["properties"]
    if not properties.get("delivery_tag"):
        msg = "the envelope has no delivery tag"
        raise DamagedEnvelope(msg)
    info = properties.get("delivery_info")
    if not isinstance(info, dict) or not {"exchange", "routing_key"} <= info.keys():
        msg = "the envelope has no delivery info"
        raise DamagedEnvelope(msg)
    check_envelope(envelope)
    return envelope
