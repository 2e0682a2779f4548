"""`huddle tune`: which flags serve a model fastest on this node's GPUs, by measuring (docs/decisions/0023).

`search` decides and `report` tells, both without doing anything; `sweep` does it, with `engine`, `load` and `results`;
`entry` writes the registry. `ports` keeps it away from users, `lock` from other sweeps, and `stops` ends it in order.
"""
