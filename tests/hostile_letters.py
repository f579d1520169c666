"""What a ledger may hold at its worst: letters and bytes by whoever can write to a queue."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal

from hypothesis import strategies as st
from tests.contracts.ledger import letter_of, message_of

from angzarr.analysis.ledger.failure import Unreadable
from angzarr.dead_letters.letter import HANDLER, ORDERED_HANDLER, PROJECTOR, Mismatch, Reason
from angzarr.events.event import Event
from angzarr.payloads.store import PayloadReference, StorageKind

#: West and east of Greenwich as far as it goes, and there.
ZONES = ("America/New_York", "UTC", "Pacific/Kiritimati")

_NASTY = (
    "", " ", ".", "..", "../..", "a/b", "/", "~", "~~", "~AAA", "a?b#c", "%2F", "%", "a b", "-x",
    "--help", "[/red]", "[bold", "\x00", "\x1b[2J\x1b]0;x\x07", "a\nb\r\nc", "\t", "\u202egpj",
    "\u2028",
    "\ud800", "\udfff", "\ud83d", "\U0001f4a3", "<script>alert(1)</script>", "{{ 7 * 7 }}",
    "'\"`$(id)", "=cmd()", "x" * 600, "\U0001f4a3" * 600, "a;b", "null", "NaN", "1e999", "{group}",
)  # fmt: skip
texts = (
    st.sampled_from(_NASTY)
    | st.text(max_size=30)
    | st.text(st.characters(exclude_categories=()), max_size=12)
)
moments = st.sampled_from(
    (
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1, 1, 1, 12, tzinfo=UTC),
        datetime(999, 12, 31, tzinfo=UTC),
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(9999, 12, 31, 12, tzinfo=UTC),
    )
) | st.datetimes(timezones=st.just(UTC))
_NUMBERS = st.integers(-(10**40), 10**40) | st.floats() | st.just(10**4_000) | st.booleans()


def _nested(levels: int) -> object:
    value: object = "deep"
    for level in range(levels):
        value = {"in": value} if level % 2 else [value]
    return value


values = st.sampled_from([_nested(90), _nested(300)]) | st.recursive(
    st.none() | _NUMBERS | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=8,
)
#: What a broker's table or another writer's letter brings besides.
header_values = values | st.binary(max_size=9) | st.just(Decimal("1e999")) | moments
_INT32 = st.integers(0, 2**31 - 1)


@st.composite
def letters(draw: st.DrawFn) -> object:
    """A letter of others, or of ours about a hostile message."""
    named = {name: draw(texts) for name in ("id", "handler", "domain", "fingerprint")}
    event = draw(
        st.none()
        | st.builds(
            Event,
            id=texts, type=texts, data=values, domain=st.none() | texts, root=st.none() | texts,
            edition=st.none() | texts, sequence=st.none() | _INT32, tenant_id=st.none() | texts,
            correlation_id=st.none() | texts, causation_id=st.none() | texts,
            occurred_at=st.none() | moments, traceparent=st.none() | texts,
            config_pins=st.dictionaries(texts, texts, max_size=2),
        )
    )  # fmt: skip
    message = message_of(draw(texts), draw(texts))
    told = draw(st.dictionaries(texts, header_values, max_size=3))
    return letter_of(
        **named,
        event=event,
        message=type(message)(
            body=draw(st.binary(max_size=30)), content_type=draw(texts),
            content_encoding=draw(texts), headers={**message.headers, **told}, queue=draw(texts),
        ),
        reason=draw(st.sampled_from(Reason)),
        explanation=draw(texts), error_type=draw(texts), error_code=draw(texts),
        error_message=draw(texts), error_stack=draw(texts), category=draw(texts),
        attempts=draw(_INT32), replay=draw(st.sampled_from([0, 1, 2**31 - 1])),
        first_attempt_at=draw(st.none() | moments), last_attempt_at=draw(st.none() | moments),
        sent_to_dlq_at=draw(moments), worker=draw(texts), version=draw(texts),
        component=draw(texts),
        component_type=draw(st.sampled_from([HANDLER, ORDERED_HANDLER, PROJECTOR]) | texts),
        mismatch=draw(st.none() | st.builds(Mismatch, _INT32, _INT32, st.integers(-9, 9))),
        metadata=draw(st.dictionaries(texts, texts, max_size=3)),
        payload=draw(st.none() | st.none() | st.builds(
            PayloadReference, kind=st.sampled_from(StorageKind), uri=texts,
            sha256=st.just("0" * 64), size=_INT32, stored_at=st.none() | moments)),
    )  # fmt: skip


unreadables = st.builds(
    Unreadable,
    domain=texts, raw=st.binary(max_size=60), content_type=texts, problem=texts,
    received_at=moments,
)  # fmt: skip
failures = st.lists(letters() | unreadables, min_size=1, max_size=4)


def worst():
    """Return letters that have each nasty text everywhere, at both ends of the calendar."""
    first, last = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    return [
        letter_of(
            f"{number} {text}", fingerprint=text, handler=text, domain=text, error_type=text,
            error_code=text, error_message=text, error_stack=text, explanation=text,
            category=text, worker=text, version=text, component=text, metadata={text: text},
            message=message_of(text, text, **{f"h{text}": _nested(300)}),
            event=Event(id=f"{number} {text}", type=text, data={text: [10**4_000, _nested(300)]},
                        tenant_id=text, correlation_id=text, root=text, occurred_at=first),
            first_attempt_at=first, last_attempt_at=first if number % 2 else last,
            sent_to_dlq_at=last,
        )
        for number, text in enumerate(_NASTY)
    ]  # fmt: skip


@contextmanager
def local_zone(name: str):
    """Let this process be in another time zone for a block."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = name
    time.tzset()
    try:
        yield
    finally:
        if before is None:
            del os.environ["TZ"]
        else:
            os.environ["TZ"] = before
        time.tzset()
