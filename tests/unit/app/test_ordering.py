"""What an app checks and starts for handlers that take events in order."""

from __future__ import annotations

import pytest
from tests.apps import apps

from angzarr.errors import ConfigurationError

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
    app.check_ordering()
    assert app.ordered_handlers() == {}
    assert app.open_keeper_thread(lambda _raw, _error: None, lambda _message, _error: "") is None


def test_ordered_handlers_are_told_with_their_order(make):
    (order,) = listening(make()).ordered_handlers().values()
    assert (order.domains, order.types, order.moves) == ({"order"}, {"Placed"}, False)


def test_a_worker_without_a_database_for_the_order_is_refused():
    with apps(broker="amqp://localhost", store="redis://localhost") as make:
        with pytest.raises(ConfigurationError, match=r"set ordering\.url"):
            listening(make()).check_ordering()
        make("other").check_ordering()


def test_the_domain_of_failed_compensations_cannot_be_ordered(make):
    app = listening(make(), domain="angzarr.saga-failures")
    with pytest.raises(ConfigurationError, match=r"give saga_compensation\.fallback"):
        app.check_ordering()


def test_the_keeper_of_an_app_takes_turns_and_closes_what_it_opened(make):
    app = listening(make())
    thread = app.open_keeper_thread(lambda _raw, _error: None, lambda _message, _error: "")
    thread.start()
    thread.end()
    assert app.ordering.lanes.summaries(list(app.ordered_handlers()))[0].lanes == 0
