"""Serving runtime: what runs on a GPU node and what talks to it. Never imports infra, components or Pulumi."""

__version__ = "0.1.0"
