"""The HTTP API and the web pages by which people see and steer dead letters (spec A5, A6)."""
