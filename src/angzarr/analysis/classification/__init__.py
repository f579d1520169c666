"""From a dead letter and the evidence to a decision. Pure."""
