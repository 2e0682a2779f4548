"""A stand-in for `pulumi-resource-command` 1.2.1, for rehearsals and tests where the real plugin cannot be had.

Its Go package lies in a module that the module proxy does not serve, and its release needs the internet. This one
speaks the same protocol (`pulumirpc.ResourceProvider`) and runs commands for real, on this machine or over SSH, with
the behaviour that hurts users kept (tools/README.md lists what is imitated and what is left out). It is put on PATH by
`PulumiEngine.offline_environment()` only; a real `make up` never meets it.
"""
