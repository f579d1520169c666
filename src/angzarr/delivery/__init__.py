"""The heart: one delivery in, one outcome out, made true before the message is let go."""
