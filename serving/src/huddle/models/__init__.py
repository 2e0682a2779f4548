"""Models as they lie on a disk: listing the registry, checking a model's files before an engine is asked to read them."""
