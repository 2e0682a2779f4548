"""The simulator's contracts and the policies' schema, made anew from Microsoft's own files (docs/decisions/0015)."""
