"""Dead letters go back on the road: single entries, edits and jobs."""
