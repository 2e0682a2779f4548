"""API Management."""
