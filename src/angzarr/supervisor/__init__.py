"""Several processes under one: who starts, stops and watches them, and by which rules."""
