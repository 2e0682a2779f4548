"""What a machine needs before the tree runs on it: a Python, `.venv`, Debian packages."""
