from __future__ import annotations

import pytest
from sqlalchemy import text

from angzarr.adapters.sql.engine import build_engine, in_transaction
from angzarr.errors import StoreUnavailable


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://somebody:s3cret@127.0.0.1:1/angzarr",
        "postgresql://somebody@127.0.0.1:1/angzarr?password=s3cret&sslpassword=s3cret",
    ],
)
def test_database_away_is_told_with_its_address_and_without_its_secrets(url):
    engine = build_engine(url)
    with pytest.raises(StoreUnavailable, match=r"somebody.*@127\.0\.0\.1:1/angzarr") as told:
        in_transaction(engine, lambda connection: connection.execute(text("SELECT 1")))
    assert "s3cret" not in str(told.value)
