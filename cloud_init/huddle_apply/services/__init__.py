"""Which services a bundle stops, starts or reloads, and whether the node answers."""
