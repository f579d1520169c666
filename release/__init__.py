"""How a release is built and what must hold of it before it leaves: `make dist`."""
