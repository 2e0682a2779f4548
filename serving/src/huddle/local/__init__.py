"""A whole service on one machine, for trying things out: a tiny model, the real engine, the wrapper, a supervisor."""
