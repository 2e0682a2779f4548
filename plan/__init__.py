"""What a stack file says, and the plan that it makes. Pure: no Pulumi, no I/O but reading the stack file."""
