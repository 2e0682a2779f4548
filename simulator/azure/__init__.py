"""A simulated azure-native provider behind Pulumi's provider protocol."""
