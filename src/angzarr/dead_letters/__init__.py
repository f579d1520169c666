"""Dead letters: what could not be handled, complete enough to be handled later."""
