from __future__ import annotations

import pytest
from tests.apps import apps
from tests.contracts.facts import a_fact

from angzarr.adapters.memory.facts import forget
from angzarr.errors import ConfigurationError
from angzarr.facts.query import EVERY


@pytest.mark.parametrize("kind", ["sqlite", "memory"])
def test_what_an_app_appends_can_be_asked(tmp_path, kind):
    url = f"sqlite:///{tmp_path / 'facts.db'}" if kind == "sqlite" else "memory://asked"
    with apps(broker="memory://", store="memory://", facts={"url": url}) as make:
        app = make()
        app.ops.facts.append([a_fact()])
        app.ops.facts.close()
        store = app.ops.open_fact_store()
        assert store.find(EVERY).facts == (a_fact(),)
        assert store.add(a_fact()) == a_fact()
        store.close()
    forget(url)


def test_an_app_whose_facts_are_log_lines_says_what_to_set(tmp_path):
    redis = "redis://127.0.0.1:1/0"
    with apps(broker=redis, store=redis) as make:
        app = make()
        with pytest.raises(
            ConfigurationError, match=r"no database that can be asked: set facts\.url"
        ):
            app.ops.open_fact_store()
