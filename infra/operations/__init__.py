"""Queries and actions that Pulumi does not support, sent to Azure Resource Manager directly."""
