"""What every plugin of the Pulumi engine needs that is written in Python."""
