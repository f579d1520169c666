"""The face of the framework: `Angzarr`, and the parts it holds."""
