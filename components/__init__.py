"""Pulumi components, one concern a file. They take plan slices and outputs; they compute no name, port or range."""
