"""The whole life of a stack under the real Pulumi engine, on a simulated Azure: nothing is created, nothing is paid."""
