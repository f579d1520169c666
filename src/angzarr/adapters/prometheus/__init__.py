"""Metrics of a worker's processes, added up and written as Prometheus reads them."""
