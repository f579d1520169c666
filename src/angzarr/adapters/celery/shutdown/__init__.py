"""How a worker ends within its grace, and loses nothing."""
