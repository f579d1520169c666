"""Help for any module: threads, forks, text, and bounds on input."""
