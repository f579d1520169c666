"""The web pages: one file for each noun. They do what the API does, by the same functions."""
