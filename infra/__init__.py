"""The Pulumi program: settings → plan → targets, and the operator's command line."""
