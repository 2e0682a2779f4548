"""A simulated azure-native provider behind Pulumi's provider protocol; see README.md for what it imitates."""
