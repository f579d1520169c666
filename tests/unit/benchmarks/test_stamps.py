from __future__ import annotations

import time

from workers.stamps import Stamps


def test_stamps_of_another_process_s_mapping_are_seen(tmp_path):
    reader = Stamps.create(tmp_path / "stamps", 3)
    writer = Stamps(tmp_path / "stamps")
    assert reader.seconds() == []

    before = time.monotonic()
    writer.set(2)
    writer.set(0)

    moments = reader.seconds()
    assert len(moments) == 2
    assert all(before - 0.001 <= moment <= time.monotonic() for moment in moments)


def test_stamps_are_counted_and_looked_up_one_by_one(tmp_path):
    stamps = Stamps.create(tmp_path / "stamps", 3)
    assert (stamps.count(), stamps.has(1), stamps.moment(1)) == (0, False, 0.0)
    stamps.set(1)
    assert stamps.count() == 1
    assert stamps.has(1)
    assert not stamps.has(0)
    assert [stamps.moment(1)] == stamps.seconds()
