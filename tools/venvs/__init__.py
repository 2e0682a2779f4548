"""Environments that tests need beside `.venv`, each made once, outside the tree, from a lock with hashes."""
