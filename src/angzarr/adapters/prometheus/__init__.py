"""Metrics of a worker's processes, added up and told as Prometheus reads them."""
