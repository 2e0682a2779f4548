"""How a bundle reaches a node: the scripts, without secrets."""
