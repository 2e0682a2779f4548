"""Kusto queries, checked by Microsoft's own language service."""
