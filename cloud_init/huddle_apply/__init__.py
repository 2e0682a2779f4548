"""The program inside a bundle that applies it to the node. Python's standard library only: it runs before any venv.

It is tested as a package of this repository and travels as `apply/huddle_apply/` in the bundle.
"""
