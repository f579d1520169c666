"""One delivery in, one outcome out, made true before its message is acknowledged."""
