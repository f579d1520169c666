"""What a process opens: how long its worker counts as alive."""

from __future__ import annotations

from datetime import timedelta

import pytest

from angzarr.resilience.claim_memory import LEASE


@pytest.mark.parametrize(
    ("options", "span"),
    [
        (None, LEASE),
        ({"lease": 30}, LEASE),
        ({"lease": 2.5}, timedelta(seconds=2.5)),
        ({"lease": "2"}, timedelta(seconds=2)),
    ],
)
def test_claims_live_no_longer_than_the_lease_that_the_broker_renews_for_them(
    make_app, options, span
):
    app = make_app("shop")
    app.conf.broker_transport_options = options
    assert app._parts.tenure.span == span
