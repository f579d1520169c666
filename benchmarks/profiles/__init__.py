"""Profiles: where the time of one event goes, in one process and without servers."""
