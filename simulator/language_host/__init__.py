"""A stand-in for `pulumi-language-python`, the program by which the Pulumi CLI runs Python programs.

The official one ships with Pulumi's releases and cannot be built from the module proxy; this one is used only beside
a CLI that infra/engine built itself. It speaks the same protocol (`pulumirpc.LanguageRuntime`) and starts programs
with Pulumi's own launcher (`pulumi-language-python-exec`). What it leaves out is listed in tools/README.md.
"""
