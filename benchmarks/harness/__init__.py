"""How a figure is measured, kept and shown; knows nothing of what is measured."""
