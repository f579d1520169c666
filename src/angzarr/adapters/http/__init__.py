"""Other people's HTTP servers."""
