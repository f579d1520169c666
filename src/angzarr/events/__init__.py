"""Events and the raw messages that carry them; nothing here knows a broker."""
