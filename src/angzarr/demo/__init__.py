"""The demo: the whole road in one process, with an account of every event."""
