"""Model files: the store, the hub, and the copies on the NVMe that serving reads."""
