from __future__ import annotations

from datetime import timedelta

from angzarr.adapters.opentelemetry.worker_meters import ClockMeters


def test_how_wrong_a_clock_is_is_told_once_it_is_known(meters, reader):
    ahead = [None]
    ClockMeters(meters).observe(lambda: ahead[0])
    assert reader.get_metrics_data() is None
    ahead[0] = timedelta(minutes=-10)
    (resource,) = reader.get_metrics_data().resource_metrics
    (metric,) = resource.scope_metrics[0].metrics
    assert metric.name == "clock_ahead_seconds"
    assert [point.value for point in metric.data.data_points] == [-600]
