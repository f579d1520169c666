"""What an app checks and starts for handlers that take events in order."""

from __future__ import annotations

import pytest
from tests.apps import apps

from angzarr.errors import ConfigurationError
from angzarr.wiring.event_store import orders_of

ORDER = {"domain": "order", "ordered_by": "root"}


@pytest.fixture
def make():
    with apps(broker="memory://", ordering={"url": "memory://"}) as make:
        yield make


def listening(app, **options):
    @app.handler("Placed", **(ORDER | options))
    def ship(event):
        pass

    return app


def test_an_app_without_ordered_handlers_opens_nothing_for_them(make):
    app = make()
    app.ops.check_ordering()
    assert orders_of(app.handlers) == {}
    assert (
        app._runtime._lanes.open_keeper_thread(
            app._runtime.owner, lambda _raw, _error: None, lambda _message, _error: ""
        )
        is None
    )


def test_ordered_handlers_are_told_with_their_order(make):
    (order,) = orders_of(listening(make()).handlers).values()
    assert (order.domains, order.types, order.moves) == ({"order"}, {"Placed"}, False)


def test_a_worker_without_a_database_for_the_order_is_refused():
    with apps(broker="amqp://localhost", store="redis://localhost") as make:
        with pytest.raises(ConfigurationError, match=r"set ordering\.url"):
            listening(make()).ops.check_ordering()
        make("other").ops.check_ordering()


def test_the_domain_of_failed_compensations_cannot_be_ordered(make):
    app = listening(make(), domain="angzarr.saga-failures")
    with pytest.raises(ConfigurationError, match=r"give saga_compensation\.fallback"):
        app.ops.check_ordering()


def test_the_keeper_of_an_app_takes_turns_and_closes_what_it_opened(make):
    app = listening(make())
    thread = app._runtime._lanes.open_keeper_thread(
        app._runtime.owner, lambda _raw, _error: None, lambda _message, _error: ""
    )
    thread.start()
    thread.end()
    assert app._parts.ordering.lanes.summaries(list(orders_of(app.handlers)))[0].lanes == 0
