"""From a registry entry to a running engine: the exact `vllm serve` command, checks before it, order when it ends."""
