"""Where a plan lands: one module per target, composition only."""
