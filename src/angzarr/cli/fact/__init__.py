"""angzarr fact: what happened to each delivery, asked by people and programs."""
