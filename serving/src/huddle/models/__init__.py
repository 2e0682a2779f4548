"""Models as they lie on a disk: list the registry, check a model's files before an engine must read them."""
