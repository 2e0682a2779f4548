"""The whole life of a stack with the real Pulumi engine on a simulated Azure: it creates nothing and costs nothing."""
