"""Connections, time-outs, schema migrations and error kinds of SQL."""
