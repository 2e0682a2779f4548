"""The part of Kusto's language that this program's queries use, run over rows in memory.

What it does not know is an error, never a guess. Microsoft's own language service checks the same files
(`tools/kql`); neither is Azure's engine.
"""
