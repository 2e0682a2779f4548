"""What Azure accepts in a request's body: facts from Microsoft's own type files, and their reading.

`data/` is made by `python -m tools.contracts`; `types.yaml` and `beyond.yaml` are kept by hand (docs/decisions/0015).
"""
