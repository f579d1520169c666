"""What a process opens: how long its worker counts as alive."""

from __future__ import annotations

from datetime import timedelta

import pytest

from angzarr.errors import ConfigurationError
from angzarr.resilience.claim_memory import LEASE


@pytest.mark.parametrize(
    ("options", "span"),
    [
        (None, LEASE),
        ({"lease": None}, LEASE),
        ({"lease": 30}, LEASE),
        ({"lease": 2.5}, timedelta(seconds=2.5)),
        ({"lease": "2"}, timedelta(seconds=2)),
        ({"lease": float("inf")}, LEASE),
    ],
)
def test_claims_live_no_longer_than_the_lease_that_the_broker_renews_for_them(
    make_app, options, span
):
    app = make_app("shop")
    app.conf.broker_transport_options = options
    assert app._parts.tenure.span == span


@pytest.mark.parametrize("lease", [0, -1, "soon", [8], float("nan")])
def test_a_lease_that_is_no_span_is_told_in_one_sentence(make_app, lease):
    app = make_app("shop")
    app.conf.broker_transport_options = {"lease": lease}
    with pytest.raises(ConfigurationError, match=r"\['lease'\] must be seconds, more than 0; got "):
        _ = app._parts.tenure
